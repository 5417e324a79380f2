"""Figures of experiments."""

import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown
from onpro.experiments.experiment import Experiment
from onpro.figures.accuracy import accuracy
from onpro.figures.matrix import matrix
from onpro.runs.files import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES: dict[str, Callable[[Sequence[Experiment]], "Figure"]] = {
    "accuracy": accuracy,
    "matrix": matrix,
}


def draw(name: str, experiments: Sequence[Experiment], path: Path) -> None:
    """Draw the figure of that name and save it; the file's ending says in which format."""
    if name not in FIGURES:
        raise unknown("figure", name, FIGURES)
    drawn = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
        figure = FIGURES[name](experiments)
        try:
            figure.savefig(drawn, format=path.suffix.removeprefix(".").lower(), dpi=160)
        except ValueError as error:  # matplotlib does not know the ending
            raise UserError(f"cannot save a figure as {path}: {error}.") from None
    save(path, drawn.getvalue())
