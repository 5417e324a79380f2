"""Pairwise comparison of experiments."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ttest_ind, ttest_rel

from onpro.experiments.comparison import Comparison, compare, paired, welch
from onpro.experiments.experiment import MEASURES, Experiment, PlannedRun
from onpro.experiments.statistics import holm
from onpro.methods import settings_for
from onpro.runs import Finished, RunConfig

PERCENT = st.integers(0, 10_000).map(lambda hundredths: hundredths / 100)
SAMPLES = st.lists(PERCENT, min_size=2, max_size=8)


def test_a_paired_test_by_hand() -> None:
    result = paired([10.0, 20.0, 30.0], [7.0, 18.0, 29.0])
    assert (result.test, result.n, result.mean) == ("paired", (3, 3), 2.0)
    # t = mean / (s / √n) of the differences 3, 2, 1 is 2 / (1 / √3), with two degrees of freedom
    t = 2 * math.sqrt(3)
    assert result.p == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert result.interval == pytest.approx(4.302653 / math.sqrt(3))
    assert result.wilcoxon == pytest.approx(2 / 2**3), "of 8 signs, 2 are as extreme"
    assert not result.constant


@pytest.mark.filterwarnings("ignore:Precision loss:RuntimeWarning")  # one sample is constant
@settings(deadline=None)
@given(first=SAMPLES, second=SAMPLES)
def test_tests_are_those_of_scipy(first: list[float], second: list[float]) -> None:
    result = welch(first, second)
    if not result.constant:
        assert result.p == ttest_ind(first, second, equal_var=False).pvalue
    n = min(len(first), len(second))
    pairs = paired(first[:n], second[:n])
    if not pairs.constant:
        assert pairs.p == ttest_rel(first[:n], second[:n]).pvalue


def test_the_interval_of_a_difference_ends_at_0_where_p_is_one_in_twenty() -> None:
    first, second = [1.0, 2.0, 4.0, 3.5], [2.0, 2.5, 1.0]
    found = welch(first, second)
    assert found.interval is not None
    shift = found.interval - found.mean
    assert welch([value + shift for value in first], second).p == pytest.approx(0.05)


@pytest.mark.parametrize("shift", [0.1, 0.0, 40.0, -1e-9])
def test_a_constant_difference_has_no_t_test(shift: float) -> None:
    second = [0.1 * seed**2 for seed in range(15)]
    first = [value + shift for value in second]
    result = paired(first, second)
    assert result.constant
    assert (result.p, result.interval) == (None, None)
    assert result.mean == pytest.approx(shift)


def test_the_ranks_of_differences_do_not_depend_on_rounding_errors() -> None:
    result = paired([0.1 + 0.2, 1.0, 2.0], [0.3, 1.0, 2.0])
    assert result.wilcoxon is None, "all three are equal but for 5e-17"
    tied = paired([0.1 + 0.2, 0.7, 5.0], [0.0, 1.0, 1.0])
    assert tied.wilcoxon == paired([0.3, 0.7, 5.0], [0.0, 1.0, 1.0]).wilcoxon


def test_constant_samples_have_no_welch_test() -> None:
    result = welch([0.1 + 0.2, 0.3, 0.3], [0.1, 0.1])
    assert result.constant
    assert (result.n, result.p) == ((3, 2), None)
    assert welch([0.3, 0.3], [0.1, 0.2]).p is not None


SETTINGS = settings_for("er", "tiny")


def experiment(
    name: str,
    values: dict[int, float],
    *,
    memory: int = 20,
    measure: str = "accuracy",
    found: bool = False,
    **stream: Any,
) -> Experiment:
    """Finished runs with a value for each seed, planned or found."""
    planned = tuple(
        PlannedRun(
            RunConfig("er", SETTINGS, "tiny", memory=memory, seed=seed, **stream),
            "done",
            Finished(Path(f"{name}-{seed}"), {MEASURES[measure]: value}),
        )
        for seed, value in values.items()
    )
    runs = tuple(run.finished for run in planned if run.finished)
    return Experiment(name, "tiny", memory, runs=runs, planned=() if found else planned)


def kinds(found: list[Comparison]) -> list[tuple[str, str, str, tuple[int, int]]]:
    return [
        (one.first.name, one.second.name, one.difference.test, one.difference.n) for one in found
    ]


def test_runs_are_paired_by_seed_and_not_by_order() -> None:
    first = {seed: float(seed**2) for seed in range(6)}
    near = {seed: value + 1 + 0.01 * seed for seed, value in first.items()}
    far = {5 - seed: value for seed, value in near.items()}

    def p(other: dict[int, float]) -> float:
        (found,) = compare([experiment("a", first), experiment("b", other)], ["accuracy"])
        assert found.difference.p is not None
        return found.difference.p

    assert p(near) < 1e-6 < p(far)
    assert p(dict(reversed(near.items()))) == pytest.approx(p(near))


def test_only_common_keys_are_paired_and_without_two_of_them_the_test_is_welchs() -> None:
    a = experiment("a", {0: 1.0, 1: 2.5, 2: 3.0})
    b = experiment("b", {1: 1.0, 2: 2.0, 3: 9.0})
    c = experiment("c", {2: 1.0, 7: 2.0})
    found = compare([a, b, c], ["accuracy"])
    assert kinds(found) == [
        ("a", "b", "paired", (2, 2)),
        ("a", "c", "Welch", (3, 2)),
        ("b", "c", "Welch", (3, 2)),
    ]
    assert found[0].difference.mean == 1.25


def test_runs_found_on_disk_are_not_paired() -> None:
    a, b = (experiment(name, {0: 1.0, 1: 2.5}, found=True) for name in "ab")
    assert kinds(compare([a, b], ["accuracy"])) == [("a", "b", "Welch", (2, 2))]


def test_p_values_are_adjusted_for_all_pairs_of_a_measure() -> None:
    made = [
        experiment(
            str(number),
            {run: number + run**1.5 + 0.1 * number * run for run in range(4)},
            memory=memory,
            found=True,
        )
        for memory in (20, 40)
        for number in range(3)
    ]
    other = [
        experiment(f"x{n}", {run: n + run for run in range(3)}, measure="forgetting", found=True)
        for n in range(2)
    ]
    found = compare([*made, *other], ["accuracy", "forgetting"])
    assert len(found) == 3 + 3 + 1
    p = [one.difference.p for one in found]
    assert all(value is not None for value in p)
    assert [one.p_holm for one in found[:6]] == holm([value for value in p[:6] if value])
    assert found[6].p_holm == p[6], "a single test needs no correction"


def test_constant_differences_do_not_count_in_the_correction() -> None:
    values = {0: 1.0, 1: 2.0, 2: 4.0}
    shifted = {seed: value + 1 for seed, value in values.items()}
    other = {0: 1.5, 1: 2.2, 2: 4.9}
    made = [experiment(name, of) for name, of in zip("abc", (values, shifted, other), strict=True)]
    found = compare(made, ["accuracy"])
    p = [one.difference.p for one in found]
    assert p[0] is None
    assert found[0].p_holm is None
    assert [one.p_holm for one in found[1:]] == holm([value for value in p[1:] if value])


def test_only_experiments_with_the_same_memory_and_two_runs_are_compared() -> None:
    found = compare(
        [
            experiment("a", {0: 1, 1: 2}),
            experiment("b", {0: 3, 1: 5}),
            experiment("c", {0: 0, 1: 1.5}),
            experiment("a", {0: 1, 1: 2}, memory=40),
            experiment("single", {0: 1}),
        ],
        ["accuracy"],
    )
    assert kinds(found) == [
        (first, second, "paired", (2, 2)) for first, second in (("a", "b"), ("a", "c"), ("b", "c"))
    ]
    assert [one.difference.mean for one in found] == [-2.5, 0.75, 3.25]


VALUES, OTHERS = {0: 1.0, 1: 2.0, 2: 4.0}, {0: 3.0, 1: 5.0, 2: 4.0}


@pytest.mark.parametrize(
    "stream",
    [
        {"tasks": 1},
        {"batch_size": 5},
        {"class_order": "random"},
        {"image_size": 16},
        {"limit_per_class": 3},
    ],
)
def test_runs_on_different_streams_are_not_paired(stream: dict[str, Any]) -> None:
    other = experiment("b", OTHERS, **stream)
    found = compare([experiment("a", VALUES), other], ["accuracy"])
    assert kinds(found) == [("a", "b", "Welch", (3, 3))]
    same = compare([experiment("a", VALUES, **stream), other], ["accuracy"])
    assert kinds(same) == [("a", "b", "paired", (3, 3))]


def test_a_default_written_out_is_the_same_stream() -> None:
    usual: dict[str, Any] = {
        "tasks": 3,
        "batch_size": 10,
        "class_order": "natural",
        "image_size": 12,
    }
    (found,) = compare([experiment("a", VALUES), experiment("b", OTHERS, **usual)], ["accuracy"])
    assert found.difference.test == "paired"
