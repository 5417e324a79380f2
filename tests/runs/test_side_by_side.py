"""Runs side by side: each computes what it would compute alone."""

import gc
import json
import signal
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from onpro.errors import UserError
from onpro.methods import methods, settings_for
from onpro.runs import (
    Finished,
    Interrupted,
    RunConfig,
    load_images,
    prepare,
    room_for_runs,
    run,
    running,
    train_side_by_side,
)
from onpro.runs.runner import Running
from onpro.training import Trainer
from onpro.training.device import pick_device
from tests.tiny_runs import lasting

CPU = torch.device("cpu")
CONFIG = RunConfig(
    "er", settings_for("er", "tiny"), data="tiny", memory=20, limit_per_class=20, device="cpu"
)


def starts(configs: Sequence[RunConfig], out: Path, **how: Any) -> list[Callable[[], Running]]:
    return [partial(running, out / config.folder, config, **how) for config in configs]


def numbers(finished: Finished) -> dict[str, Any]:
    return lasting(finished.result)


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_each_run_computes_what_it_computes_alone(tmp_path: Path, at_once: int) -> None:
    configs = [replace(CONFIG, seed=seed) for seed in range(3)]
    together = train_side_by_side(starts(configs, tmp_path / "together"), CPU, at_once=at_once)
    alone = [run(config, tmp_path / "alone") for config in configs]
    assert [numbers(a) for a in together] == [numbers(b) for b in alone]


@pytest.mark.usefixtures("step_clock")
@pytest.mark.parametrize(("runs", "at_once", "shared_by"), [(1, 1, 1), (4, 1, 1), (4, 4, 4)])
def test_the_time_of_a_run_is_its_own(
    tmp_path: Path, runs: int, at_once: int, shared_by: int
) -> None:
    configs = [replace(CONFIG, seed=seed) for seed in range(runs)]
    for done in train_side_by_side(starts(configs, tmp_path), CPU, at_once=at_once):
        assert done.result["train_seconds"] == done.result["steps"]
        assert done.result["shared_by"] == shared_by
        lines = (done.folder / "events.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        for event in events[1:]:
            turns = event["elapsed_seconds"] / event["train_seconds"]
            assert at_once - 1 < turns <= at_once, "time left is told by all turns"


def test_runs_on_a_gpu_have_equal_parts_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that asks first waits for the work of all."""
    now = 0.0
    monkeypatch.setattr("onpro.training.trainer.time.perf_counter", lambda: now)
    monkeypatch.setattr(Trainer, "_on_gpu", True)
    monkeypatch.setattr(Trainer, "_wait", lambda trainer: None)
    trainer = prepare(CONFIG)
    steps = trainer.steps()
    next(steps)
    for _ in range(len(trainer.stream) - 1):
        now += 8.0
        steps.send(4)
    assert trainer.elapsed_seconds == 8.0 * (len(trainer.stream) - 1)
    assert trainer.train_seconds == trainer.elapsed_seconds / 4


def test_how_many_shared_the_device_is_the_most_there_were(tmp_path: Path) -> None:
    """Also of a run that was interrupted meanwhile, and ends alone."""
    short, long = CONFIG, replace(CONFIG, seed=1, limit_per_class=40)
    asked = iter(range(1000))

    def stop() -> int | None:
        return signal.SIGTERM if next(asked) > 10 else None

    with pytest.raises(Interrupted):
        train_side_by_side(starts([short, long], tmp_path, stop=stop), CPU, at_once=2)
    assert run(long, tmp_path).result["shared_by"] == 2


def test_a_run_that_fails_does_not_disturb_the_others(tmp_path: Path) -> None:
    def fail() -> Running:
        yield
        raise UserError("nothing doing.")

    with pytest.raises(UserError, match="nothing doing"):
        train_side_by_side([fail, *starts([CONFIG], tmp_path)], CPU, at_once=2)
    assert (tmp_path / CONFIG.folder / "result.json").exists()


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_run_that_is_over_leaves_nothing_in_memory(tmp_path: Path, name: str) -> None:
    """Its place on the device is for the next one, before Python looks for garbage."""
    config = replace(CONFIG, method=name, settings=settings_for(name, "tiny"))
    trainer: Trainer | None = prepare(config)
    learner = weakref.ref(trainer.method) if trainer else None
    gc.disable()
    try:
        train_side_by_side(
            [partial(running, tmp_path / name, config, trainer=trainer)], CPU, at_once=1
        )
        trainer = None
        assert learner is not None
        assert learner() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(
    ("gib", "side", "runs"),
    [(80, 32, 11), (80, 8, 11), (80, 64, 2), (24, 32, 3), (4, 32, 1), (4, 224, 1)],
)
def test_a_gpu_has_room_for_so_many_runs(gib: int, side: int, runs: int) -> None:
    assert room_for_runs(gib * 2**30, side) == runs


def test_nothing_more_is_started_after_a_failure(tmp_path: Path) -> None:
    def fail() -> Running:
        raise UserError("nothing doing.")

    with pytest.raises(UserError, match="nothing doing"):
        train_side_by_side([fail, *starts([CONFIG], tmp_path)], CPU, at_once=1)
    assert not (tmp_path / CONFIG.folder).exists()


def test_an_interruption_ends_all_runs() -> None:
    ended: list[str] = []

    def interrupt() -> Running:
        yield
        raise KeyboardInterrupt

    def endless() -> Running:
        try:
            while True:
                yield
        finally:
            ended.append("endless")

    with pytest.raises(KeyboardInterrupt):
        train_side_by_side([endless, interrupt], CPU, at_once=2)
    assert ended == ["endless"]


def test_a_signal_saves_all_runs(tmp_path: Path) -> None:
    configs = [replace(CONFIG, seed=seed) for seed in range(2)]
    asked = iter(range(1000))

    def stop() -> int | None:
        return signal.SIGTERM if next(asked) > 15 else None

    with pytest.raises(Interrupted, match="is saved"):
        train_side_by_side(starts(configs, tmp_path, stop=stop), CPU, at_once=2)
    for config in configs:
        assert list((tmp_path / config.folder / "checkpoint").iterdir())
    done = train_side_by_side(starts(configs, tmp_path), CPU, at_once=2)
    assert [numbers(d) for d in done] == [numbers(run(c, tmp_path / "alone")) for c in configs]


def test_streams_share_images_that_lie_on_the_device() -> None:
    data = load_images(CONFIG)
    first, second = prepare(CONFIG, data), prepare(replace(CONFIG, seed=1), data)
    places = {t.stream._train.images.data_ptr() for t in (first, second)}  # type: ignore[attr-defined] # of this stream
    assert places == {data.train.images.data_ptr()}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["er", "onpro", "derpp", "gss"])
def test_on_a_gpu_too_each_run_computes_what_it_computes_alone(name: str, tmp_path: Path) -> None:
    config = replace(
        CONFIG,
        method=name,
        settings=settings_for(name, "tiny"),
        device="cuda",
        precision="bf16",
        deterministic=True,
    )
    configs = [replace(config, seed=seed) for seed in range(3)]
    device = pick_device("cuda")
    together = train_side_by_side(
        starts(configs, tmp_path / "together"), device, at_once=3, deterministic=True
    )
    alone = [run(c, tmp_path / "alone") for c in configs]
    assert [numbers(a) for a in together] == [numbers(b) for b in alone]
