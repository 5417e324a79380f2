"""What several runs say together."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Summary:
    """Mean, spread and confidence of a number measured in several runs."""

    n: int
    mean: float
    deviation: float | None
    """Sample standard deviation; None for a single run."""
    interval: float | None
    """Half-width of the 95 % confidence interval of the mean, t_{0.975, n−1}·s/√n."""


def summarise(values: Sequence[float]) -> Summary:
    """Mean, standard deviation and 95 % interval of the values of independent runs."""
    n = len(values)
    mean = statistics.fmean(values)
    if n < 2:
        return Summary(n, mean, None, None)
    deviation = statistics.stdev(values)
    return Summary(n, mean, deviation, _student(n - 1) * deviation / math.sqrt(n))


@cache
def _student(freedom: int) -> float:
    """Quantile 0.975 of Student's distribution, which takes a while to compute."""
    from scipy.stats import t  # takes a while to import

    return float(t.ppf(0.975, freedom))


def curve(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Average accuracy on the tasks seen so far, after each task.

    >>> curve([[90.0, None], [50.0, 80.0]])
    [90.0, 65.0]
    """
    return [statistics.fmean(row[: task + 1]) for task, row in enumerate(accuracy)]
