"""More workers than cores do not slow each other."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from onpro.data.workers import cores
from onpro.experiments.executors import Local, execute, requests
from onpro.methods import settings_for
from onpro.runs import RunConfig

CONFIG = RunConfig(
    method="er",
    settings=settings_for("er", "digits"),
    data="digits",
    memory=100,
    limit_per_class=40,
    device="cpu",
)


def runs_a_second(workers: int | None, number: int, out: Path) -> float:
    executor = Local(workers)
    configs = [replace(CONFIG, seed=seed) for seed in range(number)]
    began = time.perf_counter()
    events = [event for event in execute(requests(configs, out), executor) if event.request]
    taken = time.perf_counter() - began
    assert [event.kind for event in events].count("finished") == number
    return number / taken


@pytest.mark.slow
def test_neither_auto_nor_twice_as_many_workers_as_cores_lose_a_fifth(tmp_path: Path) -> None:
    auto, twice = cores(), 2 * cores()
    runs_a_second(auto, auto, tmp_path / "warm-up")
    best = {
        workers: max(
            runs_a_second(workers, 2 * twice, tmp_path / f"{workers}-{repetition}")
            for repetition in range(2)
        )
        for workers in sorted({1, auto, twice})
    }
    assert Local().slots() == auto
    assert min(best[auto], best[twice]) >= 0.8 * max(best.values()), best
