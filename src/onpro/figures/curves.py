"""Figures of accuracy and forgetting after each task."""

import math
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from onpro.errors import counted
from onpro.experiments import Summary, summarise
from onpro.experiments.experiment import Experiment
from onpro.experiments.statistics import accuracy_curve, forgetting_curve
from onpro.figures.style import (
    INK,
    Legend,
    Options,
    blank,
    joined,
    line_style,
    names_of,
    plain,
)
from onpro.text import written

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = Callable[[Sequence[Sequence[float]]], list[float]]
"""Computes a value after each task from the accuracy matrix."""

FEW = 5
"""Largest number of experiments whose lines have bands."""


def accuracy(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Average accuracy on the tasks seen so far, after each task (Fig. 4a)."""
    title = "average accuracy on the tasks seen so far, %"
    return _lines(experiments, accuracy_curve, title, options, best=max)


def forgetting(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Average forgetting of the tasks seen so far, after each task."""
    title = "average forgetting of the tasks seen so far, %"
    return _lines(experiments, forgetting_curve, title, options, best=min)


def _lines(
    experiments: Sequence[Experiment],
    curve: Curve,
    title: str,
    options: Options,
    *,
    best: Callable[..., float],
) -> "Figure":
    """Draw a line for each experiment, mean over its seeds; the legend begins with the best.

    Up to `FEW` experiments have bands of one standard deviation.
    """
    from matplotlib.ticker import MaxNLocator

    names, place = names_of(experiments)
    summaries = [_summaries(one, curve) for one in experiments]
    lines = list(zip(names, summaries, strict=True))
    lines.sort(key=lambda line: line[1][-1].mean, reverse=best is max)
    legend = Legend([_label(name, values[-1]) for name, values in lines], options)
    figure = blank(options, 0.5 * options.inches + legend.height)
    axes = figure.subplots()
    plain(axes, options, joined(title, place))
    for number, (_, values) in enumerate(lines):
        tasks = range(1, len(values) + 1)
        means = [task.mean for task in values]
        style = line_style(number, options)
        axes.plot(tasks, means, markevery=math.ceil(len(tasks) / 20), **style)
        if len(lines) <= FEW:
            spread = [task.deviation or 0.0 for task in values]
            low, high = (
                [mean + side * s for mean, s in zip(means, spread, strict=True)] for side in (-1, 1)
            )
            axes.fill_between(tasks, low, high, color=style["color"], alpha=0.15, linewidth=0)
    axes.set_ylim(0, 100)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("tasks learned", color=INK, size=options.font)
    legend.add(figure, axes.get_lines())
    return figure


def _summaries(experiment: Experiment, curve: Curve) -> list[Summary]:
    """Return the values after each task over the runs that have it."""
    curves = (curve(run.result["accuracy"]) for run in experiment.runs)
    return [
        summarise([value for value in values if value is not None])
        for values in zip_longest(*curves)
    ]


def _label(title: str, end: Summary) -> str:
    spread = "" if end.deviation is None else f" ± {written(end.deviation, '.1f')}"
    return f"{title}: {written(end.mean, '.1f')}{spread} ({counted(end.n, 'run')})"
