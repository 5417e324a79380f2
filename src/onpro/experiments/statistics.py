"""Statistics over several runs."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Summary:
    """Mean, spread and confidence interval of a number measured in several runs."""

    n: int
    mean: float
    deviation: float | None
    """Sample standard deviation; None for a single run."""
    interval: float | None
    """Half-width of the 95 % confidence interval of the mean, t_{0.975, n−1}·s/√n."""


def summarise(values: Sequence[float]) -> Summary:
    """Return mean, standard deviation and 95 % interval of the values of independent runs."""
    n = len(values)
    mean = statistics.fmean(values)
    if n < 2:
        return Summary(n, mean, None, None)
    deviation = statistics.stdev(values)
    return Summary(n, mean, deviation, _student(n - 1) * deviation / math.sqrt(n))


@cache
def _student(freedom: int) -> float:
    """Return the 0.975 quantile of Student's t distribution."""
    from scipy.stats import t  # slow to import

    return float(t.ppf(0.975, freedom))


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


def curve(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return the average accuracy on the tasks seen so far, after each task.

    >>> curve([[90.0, None], [50.0, 80.0]])
    [90.0, 65.0]
    """
    return [statistics.fmean(row[: task + 1]) for task, row in enumerate(accuracy)]
