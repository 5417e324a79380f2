"""What people look at: figures drawn from finished runs."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown
from onpro.experiments.run import Finished
from onpro.figures.accuracy import accuracy
from onpro.figures.matrix import matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Sequence[Finished]], "Figure"]] = {
    "accuracy": accuracy,
    "matrix": matrix,
}


def draw(name: str, runs: Sequence[Finished], path: Path) -> None:
    """Draw the figure of that name and save it; the file's ending says in which format."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    try:
        FIGURES[name](runs).savefig(path, dpi=160)
    except ValueError as error:  # matplotlib does not know the ending
        raise UserError(f"cannot save a figure as {path}: {error}.") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}.") from None
