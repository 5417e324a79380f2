"""Mean matrices of an experiment, folded if they are too large to show."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onpro.experiments.statistics import evenly
from onpro.runs import Finished

LARGEST_SIDE = 100
"""More rows than this cannot be told apart on a screen."""


@dataclass(frozen=True)
class Matrix:
    """Percent in cells; a row or column stands for a group of neighbours where it is folded."""

    labels: list[str]
    rows: list[list[float]]
    group: int
    """How many neighbours a row stands for; 1 where nothing is folded."""


def affordable_side(sides: Iterable[int], cells: int) -> int:
    """Return the side to fold matrices to, so that all together have at most `cells` cells.

    >>> affordable_side([10, 10, 500], 1_000_000)
    100
    >>> affordable_side([100] * 2000, 1_000_000)
    22
    """
    shown = [min(side, LARGEST_SIDE) for side in sides]
    if sum(side * side for side in shown) <= cells:
        return LARGEST_SIDE
    return max(1, min(LARGEST_SIDE, math.isqrt(cells // len(shown))))


def accuracy_matrix(runs: Sequence[Finished], side: int) -> Matrix:
    """Mean accuracy on each task (column) after each task (row), up to the diagonal."""
    tasks = max(len(run.result["accuracy"]) for run in runs)
    stack = np.full((len(runs), tasks, tasks), np.nan)
    for cells, run in zip(stack, runs, strict=True):
        for task, row in enumerate(run.result["accuracy"]):
            cells[task, : task + 1] = row[: task + 1]
    known = ~np.isnan(stack)
    starts, group = _groups(tasks, side)
    total = _fold(np.where(known, stack, 0).sum(axis=0), starts)
    count = _fold(known.sum(axis=0), starts)
    mean = total / np.maximum(count, 1)
    rows = [_cut(row[: task + 1]) for task, row in enumerate(mean)]
    numbers = [str(task + 1) for task in range(tasks)]
    return Matrix(_group_labels(numbers, starts, "–"), rows, group)


def confusion_matrix(runs: Sequence[Finished], side: int) -> Matrix:
    """Share of the images of each class (row) that were taken for each class (column).

    Counts of all runs are added, classes matched by name: their order may differ with the seed.
    """
    orders = [_class_names(run) for run in runs]
    first = orders[0]
    names = first if all(order == first for order in orders) else sorted(first)
    total = np.zeros((len(names), len(names)))
    for run, order in zip(runs, orders, strict=True):
        if sorted(order) != sorted(names):
            continue  # other classes: there is nothing to add them to
        place = {name: position for position, name in enumerate(order)}
        # Classes of one name cannot be matched: they stay in their own order.
        picked = [place[name] for name in names] if len(place) == len(names) else range(len(names))
        total += np.array(run.result["confusion"], dtype=float)[np.ix_(picked, picked)]
    starts, group = _groups(len(names), side)
    counts = _fold(total, starts)
    share = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return Matrix(_group_labels(names, starts, " … "), [_cut(row) for row in share], group)


@dataclass(frozen=True)
class Course:
    """A value of each class (row) at each evaluation (column); None where there is none."""

    labels: list[str]
    """Of the classes, or of groups of neighbours."""
    columns: list[str]
    """Tasks learned by each evaluation, or images seen where there are other evaluations."""
    at: str
    """What columns are: `after task` or `images seen`."""
    rows: list[list[float | None]]
    group: int
    """How many neighbouring classes a row stands for; it is their mean."""
    runs: int
    """How many runs it is the mean of."""


def course(
    runs: Sequence[Finished], field: str, rows: int, columns: int = LARGEST_SIDE
) -> Course | None:
    """Mean of a field such as `memory_content` over the runs that have it; None if none has.

    Classes are matched by their order of arrival, and named if that is the same in all runs. If
    there are more evaluations than columns, some at equal distances are shown.
    """
    known = [run for run in runs if run.result.get(field) and all(run.result[field])]
    if not known:
        return None
    alike = [run for run in known if _shape(run, field) == _shape(known[0], field)]
    values = np.array([run.result[field] for run in alike], dtype=float)  # None becomes NaN
    evaluations, classes = values.shape[1:]
    shown = evenly(evaluations, columns)
    starts, group = _groups(classes, rows)
    total = np.add.reduceat(np.nansum(values, axis=0)[shown], starts, axis=1)
    count = np.add.reduceat((~np.isnan(values)).sum(axis=0)[shown], starts, axis=1)
    cells = [
        [cut(t / n) if n else None for t, n in zip(*column, strict=True)]
        for column in zip(total.T.tolist(), count.T.tolist(), strict=True)
    ]
    orders = [_class_names(run) for run in alike]
    same = all(order == orders[0] for order in orders)
    names = orders[0] if same else [str(k + 1) for k in range(classes)]
    labels = _group_labels(names, starts, " … ")
    return Course(labels, *_evaluations(alike[0], shown), cells, group, len(alike))


def _shape(run: Finished, field: str) -> tuple[int, int]:
    return len(run.result[field]), len(run.result[field][0])


def _evaluations(run: Finished, shown: Sequence[int]) -> tuple[list[str], str]:
    """Return labels of evaluations, and what they are."""
    curve = run.result.get("curve", ())
    if len(curve) <= len(run.result["accuracy"]) or len(curve) <= shown[-1]:
        return [str(k + 1) for k in shown], "after task"
    return [f"{curve[k]['images']:,}" for k in shown], "images seen"


def _class_names(run: Finished) -> list[str]:
    return run.result.get("classes") or [str(k) for k in range(len(run.result["confusion"]))]


def _groups(count: int, side: int) -> tuple[list[int], int]:
    """Return where each group of neighbours starts, and the size of a group."""
    group = -(-count // side)
    return list(range(0, count, group)), group


def _group_labels(names: Sequence[str], starts: Sequence[int], dash: str) -> list[str]:
    ends = [*starts[1:], len(names)]
    return [
        names[a] if b == a + 1 else f"{names[a]}{dash}{names[b - 1]}"
        for a, b in zip(starts, ends, strict=True)
    ]


def _fold(cells: NDArray[np.float64], starts: Sequence[int]) -> NDArray[np.float64]:
    return np.add.reduceat(np.add.reduceat(cells, starts, axis=0), starts, axis=1)


def cut(value: float) -> float:
    """Cut a number from 0 after its second decimal, to save room.

    Rounded to one decimal or none, halves away from zero, the result equals the rounded number; a
    number that is rounded twice may differ.

    >>> cut(4.4996), cut(0.15), cut(80.0), cut(1e-6)
    (4.49, 0.15, 80, 0)
    """
    if value == int(value) or value < 0.01:
        return int(value)
    digits = repr(value)
    return float(digits[: digits.index(".") + 3])


def _cut(row: NDArray[np.float64]) -> list[float]:
    return [cut(value) for value in row.tolist()]
