"""Whether one method does better than another: runs of equal seeds, pair by pair."""

import statistics
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from onpro.experiments.experiment import Cell, Measure
from onpro.experiments.plan import Plan


@dataclass(frozen=True)
class Paired:
    """What the differences of pairs say."""

    n: int
    """Number of pairs."""
    difference: float
    """Mean of first − second."""
    t: float | None
    """p-value of the paired t-test, two-sided; None where the differences do not vary."""
    wilcoxon: float | None
    """p-value of Wilcoxon's signed-rank test, two-sided; None where all differences are 0."""


@dataclass(frozen=True)
class Comparison:
    """Two experiments on the same data set with the same memory."""

    first: str
    second: str
    data: str
    memory: int
    measure: Measure
    paired: Paired


def paired(first: Mapping[int, float], second: Mapping[int, float]) -> Paired | None:
    """Compare values by seed over the seeds both have; None where those are fewer than two."""
    from scipy.stats import ttest_rel, wilcoxon  # takes a while to import

    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return None
    a, b = ([values[seed] for seed in seeds] for values in (first, second))
    differences = [x - y for x, y in zip(a, b, strict=True)]
    with warnings.catch_warnings():  # of few runs, which n says
        warnings.simplefilter("ignore")
        t = float(ttest_rel(a, b).pvalue) if len(set(differences)) > 1 else None
        signed = float(wilcoxon(differences).pvalue) if any(differences) else None
    return Paired(len(seeds), statistics.fmean(differences), t, signed)


def compare(cells: Sequence[Cell], plan: Plan) -> Iterator[Comparison]:
    """All pairs of experiments that have data set, memory and at least two seeds in common."""
    groups: dict[tuple[str, int, Measure], list[Cell]] = {}
    for cell in cells:
        key = (cell.experiment.data, cell.experiment.memory, cell.measure)
        groups.setdefault(key, []).append(cell)
    for (data, memory, measure), members in groups.items():
        for first, second in combinations(members, 2):
            values = [plan.of(cell.experiment).values(measure) for cell in (first, second)]
            result = paired(*values)
            if result:
                titles = (first.experiment.title, second.experiment.title)
                yield Comparison(*titles, data, memory, measure, result)
