"""Figures of accuracy matrices and confusion matrices."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.errors import counted
from onpro.experiments.experiment import Experiment
from onpro.experiments.matrices import LARGEST_SIDE, Matrix, accuracy_matrix, confusion_matrix
from onpro.figures.style import INK, Options, blank, wrapped
from onpro.text import visible, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10
"""Largest number of rows for which cells carry their number, and of labels on an axis."""

LONGEST_LABEL = 14


def matrix(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy on each task after each task."""
    drawn = [accuracy_matrix(one.runs, LARGEST_SIDE) for one in experiments]
    return _heat_maps(experiments, drawn, ("task", "after task", "accuracy, %"), options)


def confusion(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Share of each class's test images predicted as each class, at the end (Fig. 4b)."""
    drawn = [confusion_matrix(one.runs, LARGEST_SIDE) for one in experiments]
    return _heat_maps(experiments, drawn, ("predicted", "class", "share of images, %"), options)


def _heat_maps(
    experiments: Sequence[Experiment],
    drawn: Sequence[Matrix],
    titles: tuple[str, str, str],
    options: Options,
) -> "Figure":
    """Draw a heat map for each experiment, in a grid."""
    count = len(experiments)
    columns = count if count <= 3 else math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    letters = int(options.inches / columns * 110 / options.font)
    names = [
        f"{wrapped(str(one), max(12, letters))}\n{counted(len(one.runs), 'run')}"
        for one in experiments
    ]
    lines = max(name.count("\n") + 1 for name in names)
    panel = 0.9 * options.inches / columns
    figure = blank(options, rows * (panel + 0.018 * options.font * lines))
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[count:]:
        axes.set_visible(False)
    for axes, name, one in zip(panels.flat, names, drawn, strict=False):
        cells = _square(one.rows)
        image = axes.imshow(cells, cmap="Blues", vmin=0, vmax=100)
        ticks = range(0, len(cells), -(-len(cells) // FEW))
        labels = [_short(one.labels[tick]) for tick in ticks]
        slanted = {"rotation": 90} if max(map(len, labels)) > 3 else {}
        axes.set_xticks(ticks, labels, **slanted)
        axes.set_yticks(ticks, labels)
        for text in (*axes.get_xticklabels(), *axes.get_yticklabels()):
            text.set_parse_math(False)
        axes.tick_params(length=0, colors=INK, labelsize=options.font - 1)
        axes.spines[:].set_visible(False)
        axes.set_title(name, loc="left", color=INK, size=options.font, parse_math=False)
        axes.set_xlabel(titles[0], color=INK, size=options.font)
        axes.set_ylabel(titles[1], color=INK, size=options.font)
        if len(cells) <= FEW:
            size = min(options.font, 55 * panel / len(cells))
            _write_numbers(axes, cells, size)
    scale = figure.colorbar(image, ax=panels, shrink=0.8 / rows)
    scale.set_label(titles[2], color=INK, size=options.font)
    scale.ax.tick_params(labelsize=options.font - 1, colors=INK, length=0)
    scale.outline.set_visible(False)
    return figure


def _square(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return rows of any length as a square matrix, filled up with NaN."""
    cells = np.full((len(rows), len(rows)), np.nan)
    for row, values in enumerate(rows):
        cells[row, : len(values)] = values
    return cells


def _short(label: str) -> str:
    label = visible(label)
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def _write_numbers(axes: "Axes", cells: NDArray[np.float64], size: float) -> None:
    for (row, column), value in np.ndenumerate(cells):
        if not np.isnan(value):
            axes.text(
                column,
                row,
                written(float(value), ".0f"),
                ha="center",
                va="center",
                size=size,
                color="white" if value > 55 else INK,
            )
