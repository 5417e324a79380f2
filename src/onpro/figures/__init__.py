"""What people look at: figures drawn from finished runs and of streams."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown
from onpro.figures.accuracy import accuracy
from onpro.figures.matrix import matrix
from onpro.figures.stream import stream
from onpro.runs.files import save
from onpro.runs.runner import Finished
from onpro.streams import ClassIncremental

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Sequence[Finished]], "Figure"]] = {
    "accuracy": accuracy,
    "matrix": matrix,
}


def draw(name: str, runs: Sequence[Finished], path: Path) -> None:
    """Draw the figure of that name and save it; the file's ending says in which format."""
    if name not in FIGURES:
        raise unknown("figure", name, [*FIGURES, "stream"])
    _save(lambda: FIGURES[name](runs), path)


def draw_streams(streams: Mapping[str, ClassIncremental], path: Path) -> None:
    """Draw what arrives when in some streams, each below its title, and save it."""
    _save(lambda: stream(streams), path)


def _save(drawing: "Callable[[], Figure]", path: Path) -> None:
    drawn = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
        figure = drawing()
        try:
            figure.savefig(drawn, format=path.suffix.removeprefix(".").lower(), dpi=160)
        except ValueError as error:  # matplotlib does not know the ending
            raise UserError(f"cannot save a figure as {path}: {error}.") from None
    save(path, drawn.getvalue())
