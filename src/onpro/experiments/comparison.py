"""Pairwise comparison of experiments, with p values."""

import statistics
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

from onpro.data import find
from onpro.experiments.experiment import Cell, Measure
from onpro.experiments.plan import Plan
from onpro.experiments.statistics import holm
from onpro.runs.config import RunConfig

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
        """Whether the differences are equal up to rounding, so that no t-test is possible."""
        return self.p is None


@dataclass(frozen=True)
class Sample:
    """Values measured in the runs of one experiment."""

    title: str
    data: str
    memory: int
    measure: Measure
    values: Mapping[Hashable, float]
    """By what the runs saw, that is stream and seed: values of two samples with equal keys are
    pairs."""


@dataclass(frozen=True)
class Comparison:
    """Two experiments with the same data set and memory."""

    first: str
    second: str
    data: str
    memory: int
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


def compare(samples: Iterable[Sample]) -> list[Comparison]:
    """Compare all pairs of samples with the same data set, memory and measure.

    The test is paired if at least two runs of each saw the same stream with the same seed, over
    those runs, and Welch's otherwise. Samples of fewer than two runs are left out. p values are
    adjusted by Holm's method over all comparisons of a measure.
    """
    groups: dict[tuple[str, int, Measure], list[Sample]] = {}
    for sample in samples:
        if len(sample.values) > 1:
            groups.setdefault((sample.data, sample.memory, sample.measure), []).append(sample)
    found = [
        Comparison(first.title, second.title, *place, _difference(first, second))
        for place, members in groups.items()
        for first, second in combinations(members, 2)
    ]
    adjusted: dict[int, float] = {}
    for measure in dict.fromkeys(comparison.measure for comparison in found):
        tested = {
            index: comparison.difference.p
            for index, comparison in enumerate(found)
            if comparison.measure == measure and comparison.difference.p is not None
        }
        adjusted |= zip(tested, holm(list(tested.values())), strict=True)
    return [replace(one, p_holm=adjusted.get(index)) for index, one in enumerate(found)]


def _difference(first: Sample, second: Sample) -> Difference:
    common = [key for key in first.values if key in second.values]
    if len(common) > 1:
        a, b = ([sample.values[key] for key in common] for sample in (first, second))
        return paired(a, b)
    return welch(list(first.values.values()), list(second.values.values()))


def planned_samples(cells: Iterable[Cell], plan: Plan) -> list[Sample]:
    """Return the values of the finished runs behind each cell."""
    return [
        Sample(
            title=cell.experiment.title,
            data=cell.experiment.data,
            memory=cell.experiment.memory,
            measure=cell.measure,
            values={
                _stream(run.config): float(run.result[cell.measure])
                for run in plan.of(cell.experiment).runs
                if run.result is not None and cell.measure in run.result
            },
        )
        for cell in cells
    ]


def _stream(config: RunConfig) -> Hashable:
    """Return what determines the batches of a run: runs of equal streams can be paired."""
    source = find(config.data)
    return (
        config.data,
        config.stream,
        config.hide_boundaries,
        config.tasks or source.tasks,
        config.batch_size,
        config.class_order,
        config.image_size or source.image_size,
        config.limit_per_class,
        config.seed,
    )
