"""Accuracy matrices: how each task is known after each task."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.errors import counted
from onpro.experiments.grouping import by_experiment
from onpro.figures.style import INK, wrapped
from onpro.runs import Finished
from onpro.text import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10
"""Up to so many tasks, cells carry their number."""


def matrix(runs: Sequence[Finished]) -> "Figure":
    """A heat map for each experiment, mean over its seeds: row after which task, column which."""
    from matplotlib.figure import Figure

    groups = by_experiment(runs)
    columns = len(groups) if len(groups) <= 3 else math.ceil(math.sqrt(len(groups)))
    rows = math.ceil(len(groups) / columns)
    titles = [
        f"{wrapped(title, 44)}\n{counted(len(group), 'run')}" for title, group in groups.items()
    ]
    tallest = max(title.count("\n") + 1 for title in titles)
    size = (0.8 + 3.2 * columns, rows * (3.1 + 0.16 * tallest))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[len(groups) :]:
        axes.set_visible(False)
    for axes, title, members in zip(panels.flat, titles, groups.values(), strict=False):
        cells = _mean(members)
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


def _mean(members: Sequence[Finished]) -> NDArray[np.float64]:
    """Mean over the runs that have a cell; not a number where none has."""
    tasks = max(len(run.result["accuracy"]) for run in members)
    total, count = np.zeros((tasks, tasks)), np.zeros((tasks, tasks))
    for run in members:
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
