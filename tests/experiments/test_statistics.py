"""Mean, spread and confidence of a number measured in several runs."""

import statistics

import pytest

from onpro.experiments import summarise


@pytest.mark.parametrize(("runs", "factor"), [(15, 0.554), (10, 0.715), (5, 1.242)])
def test_the_interval_is_a_known_multiple_of_the_deviation(runs: int, factor: float) -> None:
    values = [float(seed**2 % 7) for seed in range(runs)]
    summary = summarise(values)
    assert summary.n == runs
    assert summary.mean == pytest.approx(statistics.mean(values))
    assert summary.deviation == pytest.approx(statistics.stdev(values))
    assert summary.deviation is not None
    assert summary.interval == pytest.approx(factor * summary.deviation, rel=1e-3)


def test_two_runs_by_hand() -> None:
    summary = summarise([1.0, 3.0])
    assert summary.mean == 2
    assert summary.deviation == pytest.approx(2**0.5)
    assert summary.interval == pytest.approx(12.7062, abs=1e-4)


def test_equal_runs_leave_no_doubt() -> None:
    assert summarise([5.0, 5.0, 5.0]).interval == 0


def test_one_run_has_a_mean_and_no_spread() -> None:
    summary = summarise([61.5])
    assert (summary.n, summary.mean) == (1, 61.5)
    assert summary.deviation is None
    assert summary.interval is None
