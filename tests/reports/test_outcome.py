"""Forgetting computed from running maxima."""

from collections import Counter
from statistics import fmean
from typing import ClassVar

from hypothesis import given
from hypothesis import strategies as st

from onpro.reports.outcome import forgetting, forgotten

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
    assert forgetting(accuracy) == slow_forgetting(accuracy)
    so_far = (accuracy[: task + 1] for task in range(len(accuracy)))
    assert forgotten(accuracy) == [fmean(slow_forgetting(rows)) for rows in so_far]


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
    forgotten([[Counted(row + column) for column in range(tasks)] for row in range(tasks)])
    assert 0 < Counted.count["comparisons"] <= tasks * tasks
