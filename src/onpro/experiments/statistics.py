"""What several runs say together."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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
    from scipy.stats import t  # takes a while to import

    n = len(values)
    mean = statistics.fmean(values)
    if n < 2:
        return Summary(n, mean, None, None)
    deviation = statistics.stdev(values)
    return Summary(n, mean, deviation, float(t.ppf(0.975, n - 1)) * deviation / math.sqrt(n))
