"""Figures of experiments and of streams."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown
from onpro.experiments.experiment import Experiment
from onpro.figures.arrivals import stream
from onpro.figures.costs import compute, time
from onpro.figures.curves import accuracy, forgetting
from onpro.figures.gradcam import attention
from onpro.figures.matrices import confusion, matrix, memory
from onpro.figures.projections import features
from onpro.figures.published import paper
from onpro.figures.settings import replay, sweep
from onpro.figures.shortcuts import shortcut
from onpro.figures.similarities import prototypes
from onpro.figures.style import Options
from onpro.runs.files import require_folder_of, save
from onpro.streams import ClassIncremental

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[Sequence[Experiment], Options], "Figure"]

FIGURES: dict[str, Draw] = {
    figure.__name__: figure
    for figure in (
        *(accuracy, attention, compute, confusion, features, forgetting),
        *(matrix, memory, paper, prototypes, replay, shortcut, sweep, time),
    )
}
"""Figures of experiments; `stream` is drawn from streams."""


def draw(
    name: str, experiments: Sequence[Experiment], path: Path, options: Options | None = None
) -> None:
    """Draw the figure of a name and save it in the format of the file's ending."""
    if name not in FIGURES:
        raise unknown("figure", name, [*FIGURES, "stream"])
    _save(lambda: FIGURES[name](experiments, options or Options()), path)


def rendered(name: str, experiments: Sequence[Experiment], format: str, *, dpi: int) -> bytes:
    """Return the figure of a name as the content of a file."""
    return _rendered(lambda: FIGURES[name](experiments, Options()), format, dpi)


def draw_streams(
    streams: Mapping[str, ClassIncremental], path: Path, options: Options | None = None
) -> None:
    """Draw which classes arrive when in some streams, each below its title, and save it."""
    _save(lambda: stream(streams, options or Options()), path)


def require_savable(path: Path) -> None:
    """Raise UserError if a figure cannot be saved there, because of the folder or the ending."""
    from matplotlib.backend_bases import FigureCanvasBase

    if _format(path) not in FigureCanvasBase.get_supported_filetypes():
        raise UserError(f"cannot save a figure as {path}: end it in .png, .pdf or .svg.")
    require_folder_of(path)


def _format(path: Path) -> str:
    return path.suffix.removeprefix(".").lower()


def _save(drawing: "Callable[[], Figure]", path: Path) -> None:
    require_savable(path)
    save(path, _rendered(drawing, _format(path)))


def _rendered(drawing: "Callable[[], Figure]", format: str, dpi: int = 200) -> bytes:
    drawn = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box stands for it
        drawing().savefig(drawn, format=format, dpi=dpi)
    return drawn.getvalue()
