"""Pairwise comparison of experiments, with p values."""

import statistics
import warnings
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from onpro.experiments.experiment import MEASURES, Experiment, Measure
from onpro.experiments.grouping import STREAM
from onpro.experiments.statistics import holm
from onpro.runs.config import SHORTCUT, RunConfig

TOLERANCE = 1e-6
"""Values closer than this are equal: one test image changes an accuracy by more."""


@dataclass(frozen=True)
class Difference:
    """Difference between the means of two samples, and its two-sided tests."""

    test: Literal["paired", "Welch"]
    """Paired t-test, or Welch's t-test for independent samples with unequal variances."""
    n: tuple[int, int]
    """Number of runs of each; for a paired test both are the number of pairs."""
    mean: float
    """Mean of the first − mean of the second."""
    interval: float | None = None
    """Half-width of the 95 % confidence interval of the difference."""
    p: float | None = None
    """p value; None if the difference is constant."""
    wilcoxon: float | None = None
    """p value of Wilcoxon's signed-rank test; None if not paired or if all differences are 0."""

    @property
    def constant(self) -> bool:
        """Return whether the differences are equal up to rounding: no t-test is possible."""
        return self.p is None


@dataclass(frozen=True)
class Comparison:
    """Two experiments with the same data set and memory."""

    first: Experiment
    second: Experiment
    measure: Measure
    difference: Difference
    p_holm: float | None = None
    """p value adjusted for all comparisons of the measure."""


def paired(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare at least two pairs of values by a paired t-test and Wilcoxon's signed-rank test."""
    from scipy.stats import ttest_rel, wilcoxon  # slow to import

    differences = [x - y for x, y in zip(first, second, strict=True)]
    rounded = [round(value / TOLERANCE) for value in differences]  # for exact ties
    n, mean = len(differences), statistics.fmean(differences)
    with warnings.catch_warnings(action="ignore"):  # few runs, which n shows
        signed = float(wilcoxon(rounded).pvalue) if any(rounded) else None
        if _constant(differences):
            return Difference("paired", (n, n), mean, wilcoxon=signed)
        found = ttest_rel(first, second)
    interval = found.confidence_interval(0.95)
    half = float(interval.high - interval.low) / 2
    return Difference("paired", (n, n), mean, half, float(found.pvalue), signed)


def welch(first: Sequence[float], second: Sequence[float]) -> Difference:
    """Compare two independent samples of at least two values each by Welch's t-test."""
    from scipy.stats import ttest_ind  # slow to import

    n, mean = (len(first), len(second)), statistics.fmean(first) - statistics.fmean(second)
    if _constant(first) and _constant(second):
        return Difference("Welch", n, mean)
    with warnings.catch_warnings(action="ignore"):  # few runs, which n shows
        found = ttest_ind(first, second, equal_var=False)
    interval = found.confidence_interval(0.95)
    return Difference(
        "Welch", n, mean, float(interval.high - interval.low) / 2, float(found.pvalue)
    )


def _constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) < TOLERANCE


def compare(experiments: Iterable[Experiment], measures: Iterable[Measure]) -> list[Comparison]:
    """Compare all pairs of experiments with the same data set and memory.

    The test is paired if at least two runs of each are planned on the same stream with the same
    seed, over those runs, and Welch's otherwise: runs found on disk may come from versions with
    other streams. Experiments of fewer than two runs are left out. p values are adjusted by Holm's
    method over all comparisons of a measure.
    """
    groups: dict[tuple[str, int], list[Experiment]] = {}
    for experiment in experiments:
        groups.setdefault((experiment.data, experiment.memory), []).append(experiment)
    found: list[Comparison] = []
    for measure in measures:
        compared = [
            Comparison(first, second, measure, _difference(first, second, measure))
            for members in groups.values()
            for first, second in combinations(members, 2)
            if min(len(first.values(measure)), len(second.values(measure))) > 1
        ]
        adjusted = iter(
            holm([one.difference.p for one in compared if one.difference.p is not None])
        )
        found += [
            one if one.difference.constant else replace(one, p_holm=next(adjusted))
            for one in compared
        ]
    return found


def _difference(first: Experiment, second: Experiment, measure: Measure) -> Difference:
    a, b = (_by_stream(experiment, measure) for experiment in (first, second))
    common = [stream for stream in a if stream in b]
    if len(common) > 1:
        return paired([a[stream] for stream in common], [b[stream] for stream in common])
    return welch(first.values(measure), second.values(measure))


def _by_stream(experiment: Experiment, measure: Measure) -> dict[Hashable, float]:
    """Return the values of planned runs by what determines their batches."""
    key = MEASURES[measure]
    return {
        _stream(run.config): float(run.finished.result[key])
        for run in experiment.planned
        if run.finished and run.finished.result.get(key) is not None
    }


def _stream(config: RunConfig) -> Hashable:
    """Return what the batches of a run depend on; evaluations do not change them."""
    apart = "evaluations", *SHORTCUT
    values = {name: getattr(config, name) for name in STREAM if name not in apart}
    values |= config.defaults_of_data()
    return config.data, config.stream, config.cue(), config.seed, tuple(values.values())
