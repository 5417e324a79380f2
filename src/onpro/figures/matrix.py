"""Accuracy matrices: how each task is known after each task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.experiments.grouping import by_experiment
from onpro.experiments.run import Finished
from onpro.figures.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10
"""Up to so many tasks, cells carry their number."""


def matrix(runs: Sequence[Finished]) -> "Figure":
    """A heat map for each experiment, mean over its seeds: row after which task, column which."""
    from matplotlib.figure import Figure

    groups = by_experiment(runs)
    figure = Figure(figsize=(0.6 + 3.4 * len(groups), 3.6), layout="constrained")
    panels = figure.subplots(1, len(groups), squeeze=False)[0]
    for axes, (title, members) in zip(panels, groups.items(), strict=True):
        cells = np.array([run.result["accuracy"] for run in members], dtype=float).mean(axis=0)
        image = axes.imshow(cells, cmap="Blues", vmin=0, vmax=100)
        ticks = range(0, len(cells), max(1, len(cells) // FEW))
        axes.set_xticks(ticks, [str(t + 1) for t in ticks])
        axes.set_yticks(ticks, [str(t + 1) for t in ticks])
        axes.tick_params(length=0, colors=INK)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{title}\n{len(members)} run(s)", loc="left", color=INK, size=10)
        axes.set_xlabel("task", color=INK)
        axes.set_ylabel("after task", color=INK)
        if len(cells) <= FEW:
            _write_numbers(axes, cells)
    figure.colorbar(image, ax=panels, shrink=0.8, label="accuracy, %").outline.set_visible(False)
    return figure


def _write_numbers(axes: "Axes", cells: NDArray[np.float64]) -> None:
    for (row, column), value in np.ndenumerate(cells):
        if not np.isnan(value):
            axes.text(
                column,
                row,
                f"{value:.0f}",
                ha="center",
                va="center",
                size=9,
                color="white" if value > 55 else INK,
            )
