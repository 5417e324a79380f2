"""A run that is stopped anywhere goes on from its files as if nothing had happened."""

import errno
import logging
import os
import signal
import threading
from contextlib import closing
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context, Settings, method, methods, settings_for
from onpro.methods.er import ER
from onpro.methods.registry import AnyMethod
from onpro.streams import Batch, ClassIncremental
from onpro.training import Checkpoints, CheckpointWriter, Stopped, Trainer
from onpro.training.checkpoint import KIND
from onpro.training.statefile import Frozen, freeze
from tests.tiny_runs import CHANGING

DATA = tiny(classes=6, train_per_class=8, test_per_class=5, image_size=8)
TASKS, STEPS = 3, 6


class Diverging(ER):
    """ER whose loss becomes NaN, or its weights infinite after a good loss, at the fourth step."""

    what = "loss"

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        terms = super().learn(batch)
        if self.progress.steps == 3 and self.what == "loss":
            return terms | {"new": terms["new"] * torch.nan}
        if self.progress.steps == 3:
            with torch.no_grad():
                self.network.classifier.bias.fill_(torch.inf)
        return terms


class DivergingWeights(Diverging):
    what = "weights"


def quick(name: str) -> Settings:
    """A method's settings for tiny, without copies that take time."""
    settings = settings_for(name, "tiny")
    once = {"rotations": 1} if "rotations" in {f.name for f in fields(settings)} else {}
    return replace(settings, **once)  # type: ignore[arg-type] # a subclass has the field


def trainer_of(name: str = "er", cls: type[AnyMethod] | None = None) -> Trainer:
    context = Context(
        DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=6, memory=20, seed=3
    )
    learner = (cls or method(name))(quick(name), context)
    return Trainer(learner, ClassIncremental(DATA, TASKS))


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal, bit for bit, times aside."""
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(
            same(a[key], b[key]) for key in a if key not in CHANGING
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def reached(trainer: Trainer) -> tuple[int, int]:
    """How far a run is."""
    return trainer.stream.position, len(trainer.curve)


def stop_once_moved(trainer: Trainer, before: tuple[int, int]) -> int | None:
    """A run stopped in a rehearsal would begin it again, and so never end."""
    return None if reached(trainer) == before else signal.SIGTERM


@pytest.mark.parametrize("name", sorted(methods()))
def test_stopped_after_every_step_and_examination_a_run_ends_the_same(
    name: str, tmp_path: Path
) -> None:
    straight = trainer_of(name)
    straight.run()
    stops = 0
    while True:
        checkpoints = Checkpoints(tmp_path / "checkpoint")
        saved = checkpoints.load()
        resumed = trainer_of(name)
        if saved:
            resumed.load_state_dict(saved["trainer"])
        stop = partial(stop_once_moved, resumed, reached(resumed))
        resumed.checkpointer = CheckpointWriter(checkpoints, 0, stop=stop)
        try:
            resumed.run()
        except Stopped:
            stops += 1
        else:
            break
    assert stops == STEPS + TASKS
    assert same(resumed.state_dict(), straight.state_dict())


def test_without_a_clock_states_are_kept_after_each_task(tmp_path: Path) -> None:
    saves: list[int] = []

    class Noting(Checkpoints):
        def save(self, step: int, state: Frozen) -> None:
            saves.append(step)
            super().save(step, state)

    trainer = trainer_of()
    with closing(CheckpointWriter(Noting(tmp_path), 0)) as trainer.checkpointer:
        trainer.run()
    assert saves == [2, 4, 6]


def test_what_is_saved_is_the_state_of_the_moment(tmp_path: Path) -> None:
    begin = threading.Event()

    class Late(Checkpoints):
        def save(self, step: int, state: Frozen) -> None:
            assert begin.wait(10)
            super().save(step, state)

    checkpoints, weights = Late(tmp_path), torch.zeros(3)
    with closing(CheckpointWriter(checkpoints, 0)) as writer:
        writer.save({"stream": {"position": 1}, "weights": weights})
        weights += 1  # the run goes on while the file is not even begun
        begin.set()
    saved = checkpoints.load()
    assert saved is not None
    assert torch.equal(saved["trainer"]["weights"], torch.zeros(3))


@pytest.mark.parametrize("what", ["save", "close"])
def test_what_goes_wrong_in_writing_is_said_at_the_next_occasion(tmp_path: Path, what: str) -> None:
    class Full(Checkpoints):
        def save(self, step: int, state: Frozen) -> None:
            raise OSError(errno.ENOSPC, "no space left")

    writer = CheckpointWriter(Full(tmp_path), 0)
    writer.save({"stream": {"position": 1}})
    with pytest.raises(OSError, match="no space left"):
        writer.save({"stream": {"position": 2}}) if what == "save" else writer.close()


def test_a_state_is_saved_after_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("onpro.training.checkpoint.time.monotonic", lambda: now)
    asked: list[int] = []
    writer = CheckpointWriter(Checkpoints(tmp_path), 30, stop=lambda: asked[0] if asked else None)
    after_tasks = CheckpointWriter(Checkpoints(tmp_path), 0)
    assert not writer.should_save(task_over=False)
    assert not writer.should_save(task_over=True)
    now = 131.0
    assert writer.should_save(task_over=False)
    assert writer.should_save(task_over=True)
    assert not after_tasks.should_save(task_over=False)
    assert after_tasks.should_save(task_over=True)
    writer.save({"stream": {"position": 1}})
    assert not writer.should_save(task_over=True)
    assert not writer.should_stop()
    writer.stop_if_asked()
    asked.append(signal.SIGINT)
    assert writer.should_stop()
    with pytest.raises(Stopped, match=f"signal {signal.SIGINT:d}"):
        writer.stop_if_asked()
    with pytest.raises(Stopped, match=f"signal {signal.SIGINT:d}"):
        writer.save({"stream": {"position": 2}})


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_time_that_is_none_is_refused(tmp_path: Path, seconds: float) -> None:
    with pytest.raises(UserError, match="0 seconds or more"):
        CheckpointWriter(Checkpoints(tmp_path), seconds)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def saved_at(folder: Path, *steps: int) -> Checkpoints:
    checkpoints = Checkpoints(folder)
    for step in steps:
        checkpoints.save(
            step, freeze({"step": step, "weights": torch.full((50,), float(step))}, kind=KIND)
        )
    return checkpoints


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    checkpoints = saved_at(tmp_path, 8, 9, 10, 11)
    assert names(checkpoints) == ["step-10.onpro", "step-11.onpro"]
    state = Checkpoints(tmp_path).load()
    assert state is not None
    assert state["step"] == 11


def test_a_step_saved_twice_leaves_the_one_before_it(tmp_path: Path) -> None:
    checkpoints = saved_at(tmp_path, 8, 9, 9)
    assert names(checkpoints) == ["step-8.onpro", "step-9.onpro"]
    resumed = Checkpoints(tmp_path)
    resumed.load()
    resumed.save(9, freeze({}, kind=KIND))
    assert names(resumed) == ["step-8.onpro", "step-9.onpro"]


class Counting:
    """A checkpointer that saves after every step; notes the steps."""

    def __init__(self) -> None:
        self.saved: list[int] = []

    def should_save(self, *, task_over: bool) -> bool:
        return True

    def should_stop(self) -> bool:
        return False

    def stop_if_asked(self) -> None:
        pass

    def save(self, state: dict[str, Any]) -> None:
        self.saved.append(state["stream"]["position"])


def test_the_state_after_a_task_is_saved_once() -> None:
    trainer = trainer_of()
    trainer.checkpointer = checkpointer = Counting()
    trainer.run()
    assert checkpointer.saved == list(range(1, len(trainer.stream) + 1))


class Never(Counting):
    """A checkpointer for which it is never time to save."""

    def should_save(self, *, task_over: bool) -> bool:
        return False


def test_the_last_state_is_saved_in_any_case() -> None:
    trainer = trainer_of()
    trainer.checkpointer = checkpointer = Never()
    trainer.run()
    assert checkpointer.saved == [len(trainer.stream)]


def test_other_files_and_links_are_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    checkpoints = saved_at(folder, 8)
    (folder / "notes.txt").write_text("precious")
    checkpoints.save(9, freeze({}, kind=KIND))
    checkpoints.save(10, freeze({}, kind=KIND))
    checkpoints.remove()
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
    link = tmp_path / "link"
    link.symlink_to(folder)
    with pytest.raises(UserError, match="is a link"):
        Checkpoints(link).remove()
    (folder / "step-3.onpro").symlink_to(folder / "notes.txt")
    with pytest.raises(UserError, match="is no regular file"):
        Checkpoints(folder).remove()
    assert (folder / "notes.txt").read_text() == "precious"


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    checkpoints = saved_at(tmp_path, 8)
    (tmp_path / ".onpro-0123456789ab.part").write_bytes(b"half")
    assert [path.name for path in checkpoints.files()] == ["step-8.onpro"]
    checkpoints.save(12, freeze({}, kind=KIND))
    assert names(checkpoints) == ["step-12.onpro", "step-8.onpro"]


def test_no_folder_no_state(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoint")
    assert checkpoints.load() is None
    checkpoints.remove()
    assert not list(tmp_path.iterdir())


def damaged(content: bytes, how: str, where: float) -> bytes:
    position = int(where * (len(content) - 1))
    if how == "cut":
        return content[:position]
    return content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_file_wherever_it_is_damaged_is_told_and_the_one_before_is_taken(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest = saved_at(tmp_path, 10, 25).files()[0]
    whole = newest.read_bytes()
    for k in range(41):
        newest.write_bytes(damaged(whole, how, k / 40))
        caplog.clear()
        state = Checkpoints(tmp_path).load()
        assert state is not None
        assert state["step"] == 10
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "step-25.onpro" in record.message
        assert "resuming from step-10.onpro: steps 11 to 25 are trained again" in record.message


def test_resuming_after_damage_keeps_the_good_checkpoints(tmp_path: Path) -> None:
    newest = saved_at(tmp_path, 10, 25).files()[0]
    newest.write_bytes(b"")
    checkpoints = Checkpoints(tmp_path)
    checkpoints.load()
    checkpoints.save(12, freeze({"step": 12}, kind=KIND))
    assert names(checkpoints) == ["step-10.onpro", "step-12.onpro"]


def test_where_all_are_damaged_a_sentence_says_so(tmp_path: Path) -> None:
    for path in saved_at(tmp_path, 10, 25).files():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"no checkpoint can be read.*step-25.*step-10.*--fresh"):
        Checkpoints(tmp_path).load()
    assert names(Checkpoints(tmp_path)) == ["step-10.onpro", "step-25.onpro"]


def test_a_full_disk_takes_no_earlier_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = saved_at(tmp_path, 10, 25)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save(30, freeze({}, kind=KIND))
    assert names(checkpoints) == ["step-10.onpro", "step-25.onpro"]


def test_a_loss_that_is_nan_ends_the_run_and_saves_nothing_bad(tmp_path: Path) -> None:
    trainer = trainer_of(cls=Diverging)
    with (
        closing(CheckpointWriter(Checkpoints(tmp_path), 1e-9)) as trainer.checkpointer,
        pytest.raises(UserError, match=r"diverged at step 4, in task 2 of 3: new is nan;") as told,
    ):
        trainer.run()
    assert str(told.value).endswith("try a lower learning rate."), "it is fp32 already"
    assert names(Checkpoints(tmp_path)) == ["step-2.onpro", "step-3.onpro"]


@pytest.mark.parametrize("every", [1e-9, 0])
def test_weights_that_are_infinite_end_the_run_and_are_never_saved(
    tmp_path: Path, every: float
) -> None:
    trainer = trainer_of(cls=DivergingWeights)
    with (
        closing(CheckpointWriter(Checkpoints(tmp_path), every)) as trainer.checkpointer,
        pytest.raises(UserError, match=r"diverged at step 4, in task 2 of 3: weights of the"),
    ):
        trainer.run()
    assert len(trainer.accuracy) == 1, "the examination after step 4 would be of no use"
    newest = Checkpoints(tmp_path).files()[0]
    assert newest.name == ("step-3.onpro" if every else "step-2.onpro")


def test_infinite_weights_of_a_peer_end_the_run_too() -> None:
    trainer = trainer_of("er-ccldc")
    with torch.no_grad():
        trainer.method.learners[1].network.classifier.weight[0] = torch.inf
    trainer.stepper.step(next(iter(trainer.stream)))
    with pytest.raises(UserError, match="weights of the"):
        trainer._evaluate()


def test_a_bad_loss_is_looked_for_only_at_logged_steps_and_before_saving() -> None:
    trainer = trainer_of(cls=Diverging)
    trainer.stream = ClassIncremental(DATA, 1)  # the fourth step is neither first nor last
    trainer.run()
    assert len(trainer.accuracy) == 1
