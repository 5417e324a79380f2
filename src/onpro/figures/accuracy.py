"""Incremental accuracy: what a method still knows after each task."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from onpro.experiments.grouping import by_experiment
from onpro.experiments.run import Finished
from onpro.figures.style import COLORS, INK, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def accuracy(runs: Sequence[Finished]) -> "Figure":
    """A line for each experiment, mean over its seeds, with a band of one standard deviation."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    plain(axes)
    for number, (title, members) in enumerate(by_experiment(runs).items()):
        curves = np.array([_means(run) for run in members])
        tasks = np.arange(1, curves.shape[1] + 1)
        mean, spread = curves.mean(axis=0), curves.std(axis=0, ddof=len(members) > 1)
        color = COLORS[number % len(COLORS)]
        label = f"{title}, {len(members)} run{'s' if len(members) > 1 else ''}"
        axes.plot(tasks, mean, color=color, linewidth=2, marker="o", markersize=5, label=label)
        axes.fill_between(tasks, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0)
        axes.annotate(
            f"{mean[-1]:.1f}",
            (tasks[-1], mean[-1]),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            color=color,
        )
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("tasks learned", color=INK)
    axes.set_title("average accuracy on the tasks seen so far, %", loc="left", color=INK, size=11)
    axes.legend(frameon=False, labelcolor=INK, loc="lower left")
    return figure


def _means(run: Finished) -> list[float]:
    rows = run.result["accuracy"]
    return [float(np.mean(row[: task + 1])) for task, row in enumerate(rows)]
