"""Runs of equal seeds, pair by pair."""

import math
from pathlib import Path

import pytest

from onpro.experiments.comparison import compare, paired
from onpro.experiments.experiment import Cell, Experiment
from onpro.experiments.plan import Plan, PlannedExperiment, PlannedRun
from onpro.methods import settings_for
from onpro.runs import RunConfig


def test_differences_are_taken_seed_by_seed() -> None:
    first = {0: 10.0, 1: 20.0, 2: 30.0, 7: 99.0}
    second = {2: 29.0, 1: 18.0, 0: 7.0, 8: 1.0}
    result = paired(first, second)
    assert result is not None
    assert (result.n, result.difference) == (3, 2.0)
    # t = mean / (s / √n) of the differences 3, 2, 1 is 2 / (1 / √3), with two degrees of freedom
    t = 2 * math.sqrt(3)
    assert result.t == pytest.approx(1 - t / math.sqrt(t * t + 2))
    assert result.wilcoxon == pytest.approx(2 / 2**3), "of 8 signs, 2 are as extreme"


def test_the_order_of_seeds_does_not_matter_but_their_pairing_does() -> None:
    first = {seed: float(seed**2) for seed in range(6)}
    near = {seed: value + 1 + 0.01 * seed for seed, value in first.items()}
    far = {5 - seed: value for seed, value in near.items()}
    paired_near, paired_far = paired(first, near), paired(first, far)
    assert paired_near is not None
    assert paired_far is not None
    assert paired_near.difference == pytest.approx(paired_far.difference)
    assert paired_near.t is not None
    assert paired_far.t is not None
    assert paired_near.t < 1e-6 < paired_far.t
    assert paired(dict(reversed(first.items())), near) == paired_near


def test_one_pair_says_nothing() -> None:
    assert paired({0: 1.0}, {0: 2.0}) is None
    assert paired({0: 1.0, 1: 2.0}, {2: 1.0, 3: 2.0}) is None


def test_equal_runs_have_no_p_value() -> None:
    result = paired({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0})
    assert result is not None
    assert (result.n, result.difference, result.t, result.wilcoxon) == (2, 0.0, None, None)


def test_differences_that_do_not_vary_have_no_t_test() -> None:
    result = paired({0: 2.0, 1: 3.0, 2: 4.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    assert result is not None
    assert result.t is None
    assert result.wilcoxon == pytest.approx(0.25)


def experiment(title: str, memory: int = 20) -> Experiment:
    return Experiment(title, "er", "tiny", memory, seeds=(0, 1))


def done(wanted: Experiment, *accuracies: float) -> PlannedExperiment:
    settings = settings_for("er", "tiny")
    runs = tuple(
        PlannedRun(
            RunConfig("er", settings, "tiny", seed=seed), "done", {"average_accuracy": value}
        )
        for seed, value in enumerate(accuracies)
    )
    return PlannedExperiment(wanted, runs)


def test_only_experiments_of_one_column_are_compared() -> None:
    a, b, c = (experiment(title) for title in "abc")
    elsewhere = experiment("a", memory=40)
    unfinished = experiment("d")
    plan = Plan(
        Path("runs"),
        (
            done(a, 1, 2),
            done(b, 3, 5),
            done(c, 0, 1.5),
            done(elsewhere, 1, 2),
            done(unfinished, 1),
        ),
    )
    cells = [Cell(e.experiment, "average_accuracy") for e in plan.experiments]
    found = list(compare(cells, plan))
    assert [(one.first, one.second, one.memory) for one in found] == [
        ("a", "b", 20),
        ("a", "c", 20),
        ("b", "c", 20),
    ]
    assert [one.paired.difference for one in found] == [-2.5, 0.75, 3.25]
