"""Figure of the average accuracy after each task."""

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from onpro.errors import counted
from onpro.experiments import Summary, summarise
from onpro.experiments.experiment import Experiment
from onpro.experiments.statistics import accuracy_curve
from onpro.figures.style import COLORS, DASHES, INK, MARKERS, plain, wrapped
from onpro.text import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW = 5
"""Largest number of experiments whose lines have bands."""


def accuracy(experiments: Sequence[Experiment]) -> "Figure":
    """Draw a line for each experiment, mean over its seeds; the legend is sorted by final accuracy.

    Of a few experiments, bands show one standard deviation.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    curves = {str(experiment): _curve(experiment) for experiment in experiments}
    ranking = sorted(curves, key=lambda title: -curves[title][-1].mean)
    labels = [wrapped(_label(title, curves[title][-1]), 76) for title in ranking]
    lines = sum(label.count("\n") + 1 for label in labels)
    figure = Figure(figsize=(6.4, 3.4 + 0.2 * lines), layout="constrained")
    axes = figure.subplots()
    plain(axes)
    for number, title in enumerate(ranking):
        tasks = range(1, len(curves[title]) + 1)
        color = COLORS[number % len(COLORS)]
        axes.plot(
            tasks,
            [task.mean for task in curves[title]],
            color=color,
            linewidth=1.8,
            linestyle=DASHES[number % len(DASHES)],
            marker=MARKERS[number % len(MARKERS)],
            markersize=5,
            markevery=math.ceil(len(tasks) / 20),
        )
        if len(ranking) <= FEW:
            low = [task.mean - (task.deviation or 0) for task in curves[title]]
            high = [task.mean + (task.deviation or 0) for task in curves[title]]
            axes.fill_between(tasks, low, high, color=color, alpha=0.15, linewidth=0)
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("tasks learned", color=INK)
    axes.set_title("average accuracy on the tasks seen so far, %", loc="left", color=INK, size=11)
    legend = figure.legend(
        axes.get_lines(),
        labels,
        loc="outside lower left",
        frameon=False,
        labelcolor=INK,
        fontsize=9,
        handlelength=4,  # room for the dashes
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _curve(experiment: Experiment) -> list[Summary]:
    """Return the average accuracy on the tasks seen so far, after each task."""
    curves = (accuracy_curve(run.result["accuracy"]) for run in experiment.runs)
    return [
        summarise([value for value in values if value is not None])
        for values in zip_longest(*curves)
    ]


def _label(title: str, end: Summary) -> str:
    spread = "" if end.deviation is None else f" ± {written(end.deviation, '.1f')}"
    runs = counted(end.n, "run").replace(" ", "\u00a0")
    return f"{title}: {written(end.mean, '.1f')}{spread} ({runs})"
