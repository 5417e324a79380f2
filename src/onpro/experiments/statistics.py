"""Statistics over several runs."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from operator import sub

FEWEST_RUNS = 3
"""Fewest runs for a confidence interval: that of two runs is nine standard deviations wide to
either side."""


@dataclass(frozen=True)
class Summary:
    """Mean, spread and confidence interval of a number measured in several runs."""

    n: int
    mean: float
    deviation: float | None
    """Sample standard deviation; None for a single run."""
    interval: float | None
    """Half-width of the 95 % confidence interval of the mean, t_{0.975, n−1}·s/√n; None for fewer
    than `FEWEST_RUNS` runs."""


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, standard deviation and 95 % interval of the values of independent runs."""
    n = len(values)
    mean = statistics.fmean(values)
    if n < 2:
        return Summary(n, mean, None, None)
    deviation = statistics.stdev(values)
    half_width = _student(n - 1) * deviation / math.sqrt(n)
    return Summary(n, mean, deviation, half_width if n >= FEWEST_RUNS else None)


@cache
def _student(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t distribution."""
    from scipy.special import stdtrit  # imports faster than scipy.stats

    return float(stdtrit(freedom, 0.975))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values adjusted for their number by Holm's step-down method, in order.

    The smallest of m is multiplied by m, the next by m − 1, and so on; an adjusted value is at
    least that of every smaller p value and at most 1.

    >>> holm([0.03, 0.25, 0.01])
    [0.06, 0.25, 0.03]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for remaining, index in zip(range(len(order), 0, -1), order, strict=True):
        largest = max(largest, min(1.0, remaining * p_values[index]))
        adjusted[index] = largest
    return adjusted


def evenly(count: int, most: int) -> list[int]:
    """Return the indices of `count` items, or of `most` of them at equal distances.

    >>> evenly(3, 10), evenly(100, 10)
    ([0, 1, 2], [9, 19, 29, 39, 49, 59, 69, 79, 89, 99])
    """
    shown = min(count, most)
    return [(k + 1) * count // shown - 1 for k in range(shown)]


def accuracy_curve(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return the average accuracy on the tasks seen so far, after each task.

    >>> accuracy_curve([[90.0, None], [50.0, 80.0]])
    [90.0, 65.0]
    """
    return [statistics.fmean(row[: task + 1]) for task, row in enumerate(accuracy)]


def forgetting_curve(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return the average forgetting of the tasks seen so far, after each task.

    >>> forgetting_curve([[90.0, None], [50.0, 80.0]])
    [0.0, 20.0]
    """
    return [statistics.fmean(tasks) for tasks in _forgetting_after_each(accuracy)]


def forgetting_by_task(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return for each task its best accuracy minus its last; the mean is the paper's F_c.

    >>> forgetting_by_task([[90.0, None], [50.0, 80.0]])
    [40.0, 0.0]
    """
    *_, last = _forgetting_after_each(accuracy)
    return last


def _forgetting_after_each(accuracy: Sequence[Sequence[float]]) -> Iterator[list[float]]:
    """Yield after each task the forgetting of all tasks so far, from running maxima."""
    best: list[float] = []
    for task, row in enumerate(accuracy):
        seen = row[: task + 1]
        best = [*map(max, best, seen), seen[-1]]
        yield list(map(sub, best, seen))
