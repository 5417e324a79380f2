"""Figure of accuracy matrices: accuracy on each task after each task."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.errors import counted
from onpro.experiments.experiment import Experiment
from onpro.figures.style import INK, wrapped
from onpro.text import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10
"""Largest number of tasks for which cells carry their number."""


def matrix(experiments: Sequence[Experiment]) -> "Figure":
    """Draw a heat map for each experiment: mean accuracy after task (row) on task (column)."""
    from matplotlib.figure import Figure

    count = len(experiments)
    columns = count if count <= 3 else math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    titles = [f"{wrapped(str(one), 44)}\n{counted(len(one.runs), 'run')}" for one in experiments]
    tallest = max(title.count("\n") + 1 for title in titles)
    size = (0.8 + 3.2 * columns, rows * (3.1 + 0.16 * tallest))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[count:]:
        axes.set_visible(False)
    for axes, title, experiment in zip(panels.flat, titles, experiments, strict=False):
        cells = _mean(experiment)
        image = axes.imshow(cells, cmap="Blues", vmin=0, vmax=100)
        ticks = range(0, len(cells), max(1, len(cells) // FEW))
        axes.set_xticks(ticks, [str(t + 1) for t in ticks])
        axes.set_yticks(ticks, [str(t + 1) for t in ticks])
        axes.tick_params(length=0, colors=INK)
        axes.spines[:].set_visible(False)
        axes.set_title(title, loc="left", color=INK, size=9, parse_math=False)
        axes.set_xlabel("task", color=INK)
        axes.set_ylabel("after task", color=INK)
        if len(cells) <= FEW:
            _write_numbers(axes, cells)
    scale = figure.colorbar(image, ax=panels, shrink=0.8 / rows, label="accuracy, %")
    scale.outline.set_visible(False)
    return figure


def _mean(experiment: Experiment) -> NDArray[np.float64]:
    """Return the mean over the runs that have a cell; NaN if none has."""
    tasks = max(len(run.result["accuracy"]) for run in experiment.runs)
    total, count = np.zeros((tasks, tasks)), np.zeros((tasks, tasks))
    for run in experiment.runs:
        for task, row in enumerate(run.result["accuracy"]):
            total[task, : task + 1] += row[: task + 1]
            count[task, : task + 1] += 1
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _write_numbers(axes: "Axes", cells: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(cells):
        if not np.isnan(value):
            axes.text(
                column,
                row,
                written(float(value), ".0f"),
                ha="center",
                va="center",
                size=9,
                color="white" if value > 55 else INK,
            )
