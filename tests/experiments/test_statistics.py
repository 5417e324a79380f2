"""Mean, spread and confidence of a number measured in several runs."""

import statistics
from collections import Counter
from statistics import fmean
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onpro.experiments import summarise
from onpro.experiments.statistics import forgetting_by_task, forgetting_curve, holm


@pytest.mark.parametrize(("runs", "factor"), [(15, 0.554), (10, 0.715), (5, 1.242)])
def test_the_interval_is_a_known_multiple_of_the_deviation(runs: int, factor: float) -> None:
    values = [float(seed**2 % 7) for seed in range(runs)]
    summary = summarise(values)
    assert summary.n == runs
    assert summary.mean == pytest.approx(statistics.mean(values))
    assert summary.deviation == pytest.approx(statistics.stdev(values))
    assert summary.deviation is not None
    assert summary.interval == pytest.approx(factor * summary.deviation, rel=1e-3)


def test_two_runs_have_a_deviation_and_no_interval() -> None:
    summary = summarise([1.0, 3.0])
    assert summary.mean == 2
    assert summary.deviation == pytest.approx(2**0.5)
    assert summary.interval is None


def test_three_runs_by_hand() -> None:
    summary = summarise([1.0, 2.0, 3.0])
    assert summary.interval == pytest.approx(4.302653 / 3**0.5)


def test_equal_runs_leave_no_doubt() -> None:
    assert summarise([5.0, 5.0, 5.0]).interval == 0


def test_one_run_has_a_mean_and_no_spread() -> None:
    summary = summarise([61.5])
    assert (summary.n, summary.mean) == (1, 61.5)
    assert summary.deviation is None
    assert summary.interval is None


def slow_holm(p_values: list[float]) -> list[float]:
    """The definition: the largest of (m − rank)·p over all p values up to this one, at most 1."""
    order = sorted(p_values)
    scaled = [(len(order) - rank) * p for rank, p in enumerate(order)]
    return [
        min(1.0, max(s for s, other in zip(scaled, order, strict=True) if other <= p))
        for p in p_values
    ]


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_follows_its_definition(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(slow_holm(p_values))


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_lies_between_no_correction_and_bonferroni(p_values: list[float]) -> None:
    for p, adjusted in zip(p_values, holm(p_values), strict=True):
        assert p <= adjusted <= min(1.0, len(p_values) * p)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []


Matrix = list[list[float]]


def slow_forgetting(accuracy: Matrix) -> list[float]:
    """The definition: for each task its best accuracy since it was learned minus its last."""
    tasks = range(len(accuracy))
    return [max(row[task] for row in accuracy[task:]) - accuracy[-1][task] for task in tasks]


@st.composite
def matrices(draw: st.DrawFn) -> Matrix:
    tasks = draw(st.integers(1, 8))
    cell = st.floats(0, 100) | st.integers(0, 3).map(float)
    return [[draw(cell) for _ in range(tasks)] for _ in range(tasks)]


@given(matrices())
def test_running_maxima_give_the_defined_values_exactly(accuracy: Matrix) -> None:
    assert forgetting_by_task(accuracy) == slow_forgetting(accuracy)
    so_far = (accuracy[: task + 1] for task in range(len(accuracy)))
    assert forgetting_curve(accuracy) == [fmean(slow_forgetting(rows)) for rows in so_far]


class Counted(float):
    """A number that counts how often it is compared."""

    count: ClassVar[Counter[str]] = Counter()

    def __gt__(self, other: float) -> bool:
        self.count["comparisons"] += 1
        return float(self) > float(other)

    def __lt__(self, other: float) -> bool:
        self.count["comparisons"] += 1
        return float(self) < float(other)


def test_each_cell_is_compared_once() -> None:
    tasks = 40
    Counted.count.clear()
    forgetting_curve([[Counted(row + column) for column in range(tasks)] for row in range(tasks)])
    assert 0 < Counted.count["comparisons"] <= tasks * tasks
