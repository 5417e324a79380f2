"""Metrics against golden numbers and against small matrices worked out by hand."""

from collections.abc import Sequence

import pytest

from onpro.experiments import summarise
from onpro.training import Metrics
from tests.golden.values import Golden

Matrix = Sequence[Sequence[float | None]]

GOLDEN = {
    "average_accuracy": "metrics_avg_end_acc",
    "average_forgetting": "metrics_avg_end_fgt",
    "average_incremental_accuracy": "metrics_avg_acc",
    "backward_transfer": "metrics_avg_bwtp",
    "forward_transfer": "metrics_avg_fwt",
}

FORGETS: Matrix = [[90.0, None, None], [60.0, 80.0, None], [30.0, 50.0, 70.0]]
"""Every task is best when it is new."""

RECOVERS: Matrix = [[40.0, None, None], [20.0, 90.0, None], [60.0, 80.0, 70.0]]
"""The first task is best at the end."""


@pytest.mark.golden("onpro/metrics_in", "onpro/{key}")
@pytest.mark.parametrize(("measure", "key"), GOLDEN.items())
def test_mean_and_interval_over_runs_equal_the_official_code(
    golden: Golden, measure: str, key: str
) -> None:
    runs = golden["onpro/metrics_in"].tolist()
    summary = summarise([getattr(Metrics.of(run), measure) for run in runs])
    mean, half_width = golden[f"onpro/{key}"].tolist()
    assert summary.n == 4
    assert summary.mean == pytest.approx(mean, rel=1e-9)
    assert summary.interval == pytest.approx(half_width, rel=1e-9)


@pytest.mark.golden("onpro/metrics_in")
def test_what_was_not_evaluated_counts_nothing(golden: Golden) -> None:
    run = golden["onpro/metrics_in"][0].tolist()
    blank = [[v if j <= i else None for j, v in enumerate(row)] for i, row in enumerate(run)]
    assert Metrics.of(blank) == Metrics.of(run)
    assert Metrics.of([row[: i + 1] for i, row in enumerate(run)]) == Metrics.of(run)


def test_accuracy() -> None:
    assert Metrics.of(FORGETS).average_accuracy == pytest.approx(50)
    assert Metrics.of(FORGETS).average_incremental_accuracy == pytest.approx((90 + 70 + 50) / 3)
    assert Metrics.of(FORGETS).learning_accuracy == pytest.approx((90 + 80 + 70) / 3)


def test_forgetting_over_all_tasks_and_over_all_but_the_last() -> None:
    metrics = Metrics.of(FORGETS)
    assert metrics.average_forgetting == pytest.approx((60 + 30 + 0) / 3)
    assert metrics.average_forgetting_strict == pytest.approx((60 + 30) / 2)


def test_only_the_strict_forgetting_is_negative_where_a_task_recovers() -> None:
    metrics = Metrics.of(RECOVERS)
    assert metrics.average_forgetting == pytest.approx((0 + 10 + 0) / 3)
    assert metrics.average_forgetting_strict == pytest.approx(((40 - 60) + (90 - 80)) / 2)


def test_backward_transfer_is_never_negative() -> None:
    assert Metrics.of(FORGETS).backward_transfer == 0
    gains = (20 - 40) + (60 - 40) + (80 - 90)
    assert Metrics.of(RECOVERS).backward_transfer == max(0, gains / 3)
    assert Metrics.of([[10.0, None], [30.0, 50.0]]).backward_transfer == pytest.approx(20)


def test_forward_transfer_is_the_mean_above_the_diagonal() -> None:
    assert Metrics.of(FORGETS).forward_transfer == 0
    assert Metrics.of([[9, 1, 2], [9, 9, 6], [9, 9, 9]]).forward_transfer == pytest.approx(3)


@pytest.mark.parametrize(
    ("accuracy", "expected"),
    [
        (FORGETS, (60 / 90 + 30 / 80) / 3),
        (RECOVERS, (0 + 10 / 90) / 3),
        ([[0.0, None], [0.0, 80.0]], 1 / 2),
    ],
    ids=["forgets", "recovers", "never learned"],
)
def test_relative_forgetting(accuracy: Matrix, expected: float) -> None:
    assert Metrics.of(accuracy).relative_forgetting == pytest.approx(expected)


def test_one_task_forgets_nothing() -> None:
    metrics = Metrics.of([[80.0]])
    assert metrics.average_accuracy == metrics.average_incremental_accuracy == 80
    assert metrics.learning_accuracy == 80
    assert metrics.average_forgetting == metrics.average_forgetting_strict == 0
    assert metrics.backward_transfer == metrics.forward_transfer == 0
    assert metrics.relative_forgetting == 0


@pytest.mark.parametrize("accuracy", [[], [[1.0, 2.0]], [[1.0], [2.0]], [[], [1.0, 2.0]]])
def test_other_than_square_is_refused(accuracy: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="square"):
        Metrics.of(accuracy)
