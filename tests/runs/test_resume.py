"""A run that is interrupted, in whatever way, ends as if it had not been, or says what is lost."""

import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from onpro._version import __version__
from onpro.errors import UserError
from onpro.methods import methods, settings_for
from onpro.runs import (
    Finished,
    Interrupted,
    RunConfig,
    finished,
    finished_in,
    prepare,
    read_config,
    run,
    run_in,
)
from onpro.runs.events import EventLog
from onpro.runs.files import locked
from onpro.runs.result import describe
from onpro.training import EvaluationEvent, StepEvent, Trainer
from onpro.training.statefile import freeze, load_state, save_state
from tests.tiny_runs import lasting


def quick(name: str) -> RunConfig:
    settings = settings_for(name, "tiny")
    once: dict[str, Any] = {"rotations": 1} if name == "onpro" else {}
    return RunConfig(
        method=name,
        settings=replace(settings, **once),
        data="tiny",
        memory=20,
        limit_per_class=8,
        device="cpu",
    )


ER, ONPRO = quick("er"), quick("onpro")


class AfterTask:
    """A listener that acts after the examination of a task, before the checkpoint of that task."""

    def __init__(self, task: int, act: Callable[[], None]) -> None:
        self.task, self.act = task, act

    def on_step(self, step: StepEvent) -> None:
        pass

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        if evaluated.task == self.task:
            self.act()


def raising(error: BaseException, task: int = 1) -> AfterTask:
    def act() -> None:
        raise error

    return AfterTask(task, act)


def stopped(out: Path, when: Callable[[Trainer], bool], **options: Any) -> Interrupted:
    """Run ER until a stop is asked for, and then no further."""
    trainer = prepare(ER)
    with pytest.raises(Interrupted) as stop:
        run(
            ER,
            out,
            trainer=trainer,
            stop=lambda: signal.SIGTERM if when(trainer) else None,
            **options,
        )
    return stop.value


def log_of(folder: Path) -> list[Any]:
    lines = (folder / "events.jsonl").read_text().splitlines()
    return [lasting(json.loads(line)) for line in lines]


def same_run(a: Finished, b: Finished) -> bool:
    return lasting(a.result) == lasting(b.result) and log_of(a.folder) == log_of(b.folder)


def same_state(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same_state(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same_state, a, b))
    return bool(a == b)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(ER, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("hidden", [False, True], ids=["announced", "hidden"])
def test_a_stop_in_a_rehearsal_does_not_wait_for_its_end(tmp_path: Path, hidden: bool) -> None:
    config = replace(quick("gdumb"), hide_boundaries=hidden)
    trainer = prepare(config)
    rehearsed: list[int] = []

    def stop() -> int | None:
        rehearsed.append(trainer.stepper.rehearsed)
        return signal.SIGTERM if rehearsed[-1] == 3 and len(trainer.accuracy) == 1 else None

    with pytest.raises(Interrupted, match="is saved, resume"):
        run(config, tmp_path / "stopped", trainer=trainer, stop=stop, checkpoint_every=1e-9)
    assert rehearsed[-1] == 3
    resumed = run(config, tmp_path / "stopped")
    assert same_run(resumed, run(config, tmp_path / "undisturbed"))


def interrupted(out: Path, steps: int = 3) -> Path:
    """The folder of a run stopped after so many steps, with a checkpoint of each."""
    stopped(out, lambda trainer: trainer.stream.position >= steps, checkpoint_every=1e-9)
    return out / ER.folder


def checkpoints_in(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoint").iterdir())


@pytest.mark.parametrize("config", [ER, ONPRO], ids=["er", "onpro"])
@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_stopped_run_goes_on_and_ends_the_same(
    tmp_path: Path, config: RunConfig, steps: int
) -> None:
    straight, first, resumed = (prepare(config) for _ in range(3))
    expected = run(config, tmp_path / "straight", trainer=straight)

    def ask() -> int | None:
        return signal.SIGTERM if first.stream.position >= steps else None

    with pytest.raises(Interrupted) as stop:
        run(config, tmp_path, trainer=first, checkpoint_every=0, stop=ask)
    folder = tmp_path / config.folder
    assert stop.value.signal == signal.SIGTERM
    assert str(stop.value) == (
        f"interrupted; step {steps} of 6 is saved, resume with: onpro resume {folder}"
    )
    assert not (folder / "result.json").exists()
    assert (folder / "config.json").exists()
    assert f"step-{steps}.onpro" in checkpoints_in(folder)

    done = run(config, tmp_path, trainer=resumed)
    assert same_run(done, expected)
    assert same_state(resumed.method.state_dict(), straight.method.state_dict())
    assert {path.name for path in folder.iterdir()} == {
        "config.json",
        "events.jsonl",
        "result.json",
    }


def test_going_on_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = interrupted(tmp_path)
    assert not caplog.records
    run(ER, tmp_path)
    assert [r.message for r in caplog.records] == [
        f"{folder} resumes from step 3 of 6 (onpro resume --fresh starts over)."
    ]


def test_a_run_can_start_over(
    tmp_path: Path, undisturbed: Finished, caplog: pytest.LogCaptureFixture
) -> None:
    interrupted(tmp_path)
    assert same_run(run(ER, tmp_path, fresh=True), undisturbed)
    assert not caplog.records


def test_a_folder_is_all_that_is_needed(tmp_path: Path, undisturbed: Finished) -> None:
    folder = interrupted(tmp_path).rename(tmp_path / "moved")
    done = run_in(folder, read_config(folder))
    assert done.folder == folder
    assert same_run(done, undisturbed)


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_configuration_comes_back_from_its_file(tmp_path: Path, name: str) -> None:
    config = RunConfig(
        name, settings_for(name, "cifar10"), data="tiny", data_dir=tmp_path, tasks=2, device="cpu"
    )
    with pytest.raises(KeyboardInterrupt):
        run(
            config,
            tmp_path,
            trainer=prepare(ER),
            listeners=[raising(KeyboardInterrupt(), task=1)],
            checkpoint_every=0,
        )
    assert read_config(tmp_path / config.folder) == config


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"temperature": 1}, r"'temperature' is unknown: .*by onpro 9\.9 .*; use that"),
        ({"memory": ...}, "'memory' is missing"),
        ({"temperature": 1, "versions": {"onpro": __version__}}, "'temperature' is unknown[.]$"),
        ({"temperature": 1, "versions": 7}, "'temperature' is unknown[.]$"),
        ({"settings": {"encoder": "slim", "colour": 3}}, "'colour' is unknown, .* is missing"),
        ({"method": "err"}, "no method 'err'"),
        ({"memory": "many"}, "memory must be a whole number, not 'many'"),
        ({"memory": 5}, "a memory of 5 images is smaller than a batch of 10"),
        ({"precision": "fp8"}, "precision must be 'fp32' or 'tf32' or .*, not 'fp8'"),
        ({"tasks": [3]}, r"tasks must be a whole number, not \[3\]"),
        ({"data": None}, "data must be a text in quotes, not None"),
        ({"data_dir": 7}, "data_dir must be a text in quotes, not 7"),
        ({"settings": 3}, "it has no settings of the method"),
        ({"method": ...}, "it names no method"),
        ({"method": ["er"]}, "it names no method"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_told(
    tmp_path: Path, undisturbed: Finished, change: dict[str, Any], sentence: str
) -> None:
    values = json.loads((undisturbed.folder / "config.json").read_text())
    values["versions"]["onpro"] = "9.9"
    values = {key: value for key, value in (values | change).items() if value is not ...}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=sentence) as told:
        read_config(tmp_path)
    assert str(told.value).startswith(f"{tmp_path}/config.json cannot be used: ")


def test_what_is_no_run_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no folder"):
        read_config(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"not the folder of a run: it has no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(UserError, match=r"config\.json cannot be read.*; start another run"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[" * 10**5)
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(UserError, match=r"config\.json cannot be used: it holds no object"):
        read_config(tmp_path)


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    thesis = tmp_path / ER.folder / "thesis.tex"
    thesis.parent.mkdir()
    thesis.touch()
    for fresh in (False, True):
        with pytest.raises(UserError, match="is not the folder of a run: move it away"):
            run(ER, tmp_path, fresh=fresh)
    assert thesis.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a defect")])
def test_a_failure_before_the_first_checkpoint_leaves_nothing(
    tmp_path: Path, error: BaseException
) -> None:
    with pytest.raises(type(error)) as raised:
        run(ER, tmp_path, listeners=[raising(error, task=0)])
    assert not list(tmp_path.iterdir())
    if isinstance(error, KeyboardInterrupt):
        assert str(raised.value) == "interrupted; the unfinished run was not kept."


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        RuntimeError("a defect"),
        UserError("no good."),
        OSError(28, "No space left on device"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_later_failure_keeps_the_last_checkpoint_and_says_where(
    tmp_path: Path, error: BaseException, undisturbed: Finished
) -> None:
    with pytest.raises(UserError if isinstance(error, OSError) else type(error)) as raised:
        run(ER, tmp_path, listeners=[raising(error)], checkpoint_every=0)
    folder = tmp_path / ER.folder
    told = str(raised.value) + " ".join(getattr(raised.value, "__notes__", []))
    assert str(folder) in told
    assert "step 2" in told
    assert checkpoints_in(folder) == ["step-2.onpro"]
    assert same_run(run(ER, tmp_path), undisturbed)


def test_a_repetition_that_is_stopped_leaves_the_finished_run_as_it_was(
    tmp_path: Path, undisturbed: Finished
) -> None:
    before = run(ER, tmp_path)
    message = str(stopped(tmp_path, lambda trainer: trainer.stream.position == 3, fresh=True))
    assert message.endswith(f"onpro resume {before.folder}.new")
    assert finished(ER, tmp_path) == before
    repetition = tmp_path / f"{ER.folder}.new"
    assert finished_in(repetition) is None
    (before.folder / "notes.txt").touch()

    done = run_in(repetition, read_config(repetition))
    assert done.folder == before.folder
    assert same_run(done, undisturbed)
    assert [path.name for path in tmp_path.iterdir()] == [ER.folder]
    assert json.loads((done.folder / "result.json").read_text()) == done.result
    assert (done.folder / "notes.txt").exists()


@pytest.mark.parametrize("there", [True, False], ids=["still there", "already gone"])
def test_a_repetition_killed_while_it_took_the_place_takes_it_later(
    tmp_path: Path, undisturbed: Finished, there: bool
) -> None:
    repetition = tmp_path / f"{ER.folder}.new"
    shutil.copytree(undisturbed.folder, repetition)
    if there:
        shutil.copytree(undisturbed.folder, tmp_path / ER.folder)
        (tmp_path / ER.folder / "result.json").write_text('"old"')
    trainer = prepare(ER)
    done = run(ER, tmp_path, trainer=trainer)
    assert done.result == undisturbed.result
    assert trainer.stream.position == 0, "nothing was trained"
    assert [path.name for path in tmp_path.iterdir()] == [ER.folder]


@pytest.mark.parametrize("fresh", [False, True])
def test_a_move_that_was_killed_loses_nothing_that_had_moved(
    tmp_path: Path, undisturbed: Finished, fresh: bool
) -> None:
    repetition, place = tmp_path / f"{ER.folder}.new", tmp_path / ER.folder
    shutil.copytree(undisturbed.folder, repetition)
    shutil.copytree(undisturbed.folder, place)
    (place / "result.json").write_text('"old"')
    names = {path.name for path in repetition.iterdir()}
    assert len(names) > 2
    for name in names - {"result.json"}:
        (repetition / name).replace(place / name)
    assert same_run(run(ER, tmp_path, fresh=fresh), undisturbed)
    assert {path.name for path in place.iterdir()} == names
    assert [path.name for path in tmp_path.iterdir()] == [ER.folder]


def test_checkpoints_a_kill_left_beside_a_result_are_removed(
    tmp_path: Path, undisturbed: Finished
) -> None:
    folder = interrupted(tmp_path)
    shutil.copy(undisturbed.folder / "result.json", folder)
    assert finished(ER, tmp_path)
    assert (folder / "checkpoint").exists(), "looking changes nothing"
    assert run(ER, tmp_path).result == undisturbed.result
    assert not (folder / "checkpoint").exists()


def test_a_kill_after_the_last_task_needs_no_training(
    tmp_path: Path, undisturbed: Finished
) -> None:
    message = str(stopped(tmp_path, lambda trainer: len(trainer.accuracy) == 3))
    assert "step 6 of 6 is saved" in message
    assert same_run(run(ER, tmp_path), undisturbed)


def test_a_damaged_checkpoint_costs_time_and_nothing_else(
    tmp_path: Path, undisturbed: Finished, caplog: pytest.LogCaptureFixture
) -> None:
    folder = interrupted(tmp_path, steps=5)
    assert checkpoints_in(folder) == ["step-4.onpro", "step-5.onpro"]
    newest = folder / "checkpoint" / "step-5.onpro"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert same_run(run(ER, tmp_path), undisturbed)
    assert "step-5.onpro is damaged" in caplog.text
    assert "steps 5 to 5 are trained again" in caplog.text
    assert "resumes from step 4 of 6" in caplog.text


def test_where_all_checkpoints_are_damaged_nothing_is_touched(
    tmp_path: Path, undisturbed: Finished
) -> None:
    folder = interrupted(tmp_path, steps=5)
    for path in (folder / "checkpoint").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"no checkpoint can be read.*--fresh"):
        run(ER, tmp_path)
    assert checkpoints_in(folder) == ["step-4.onpro", "step-5.onpro"]
    assert same_run(run(ER, tmp_path, fresh=True), undisturbed)


@pytest.mark.parametrize("gone", ["step-5.onpro", "*"])
def test_deleted_checkpoints_cost_time_and_nothing_else(
    tmp_path: Path, undisturbed: Finished, caplog: pytest.LogCaptureFixture, gone: str
) -> None:
    folder = interrupted(tmp_path, steps=5)
    for path in (folder / "checkpoint").glob(gone):
        path.unlink()
    assert same_run(run(ER, tmp_path), undisturbed)
    said = "has no checkpoint: it starts from its first step" if gone == "*" else "from step 4 of 6"
    assert said in caplog.text


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    other = replace(ER, seed=1)
    folder.rename(tmp_path / other.folder)
    with pytest.raises(UserError, match=rf"holds another run, {ER.folder}"):
        run(other, tmp_path)
    (tmp_path / other.folder / "config.json").write_text(json.dumps(describe(other)))
    with pytest.raises(UserError, match=rf"of the run {ER.folder}, not {other.folder}"):
        run(other, tmp_path)


def change(folder: Path, **values: Any) -> None:
    for path in (folder / "checkpoint").iterdir():
        state = load_state(path, kind="checkpoint")
        save_state(path, freeze(state | values, kind="checkpoint"))


def test_a_run_of_another_device_is_refused(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    change(folder, device="cuda")
    with pytest.raises(UserError, match=r"of the device cuda, not cpu: resume it there"):
        run(ER, tmp_path)
    assert checkpoints_in(folder)


def test_data_that_have_changed_are_told(tmp_path: Path) -> None:
    folder = interrupted(tmp_path)
    other = prepare(replace(ER, limit_per_class=9))
    with pytest.raises(UserError, match=r"does not fit this run.*schedule.*--fresh"):
        run(ER, tmp_path, trainer=other)
    change(folder, trainer={})
    with pytest.raises(UserError, match=r"does not fit this run.*version"):
        run(ER, tmp_path)


def test_pixels_that_have_changed_are_told(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(20):
            pixels = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    config = replace(ER, data=f"folder:{tmp_path / 'images'}", image_size=8, limit_per_class=None)
    trainer = prepare(config)

    def ask() -> int | None:
        return signal.SIGTERM if trainer.stream.position == 1 else None

    with pytest.raises(Interrupted):
        run(config, tmp_path / "out", trainer=trainer, stop=ask)
    Image.new("RGB", (8, 8), "red").save(tmp_path / "images" / "a" / "7.png")
    with pytest.raises(UserError, match=r"does not fit this run, whose data.*images differ"):
        run(config, tmp_path / "out")


def test_other_versions_or_hardware_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = interrupted(tmp_path)
    values = json.loads((folder / "config.json").read_text())
    values["versions"]["torch"] = "1.0"
    (folder / "config.json").write_text(json.dumps(values))
    run(ER, tmp_path)
    assert f"changed since the run began: torch 1.0 → {torch.__version__};" in caplog.text


def test_lines_logged_after_the_checkpoint_are_not_doubled(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.on_evaluation(EvaluationEvent(2, 0, [1.0], 1, 1, 1))
    valid = log.size()
    log.on_evaluation(EvaluationEvent(4, 1, [1.0, 2.0], 1, 1, 1))
    log.close()
    with (tmp_path / "events.jsonl").open("a") as file:
        file.write('{"event": "eva')  # killed in the middle of a line
    again = EventLog(tmp_path / "events.jsonl", valid)
    assert again.size() == valid
    again.on_evaluation(EvaluationEvent(4, 1, [3.0, 4.0], 1, 1, 1))
    again.close()
    assert [event["accuracy"] for event in log_of(tmp_path)] == [[1.0], [3.0, 4.0]]


@pytest.mark.parametrize("left", [0, 20, None])
def test_a_log_that_was_cut_is_told_and_stays_readable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: int | None, undisturbed: Finished
) -> None:
    folder = interrupted(tmp_path, steps=5)
    if left is None:
        (folder / "events.jsonl").unlink()
    else:
        os.truncate(folder / "events.jsonl", left)
    done = run(ER, tmp_path)
    assert lasting(done.result) == lasting(undisturbed.result)
    assert "events.jsonl is not complete" in caplog.text
    assert log_of(folder)[-1] == log_of(undisturbed.folder)[-1]


def test_tensorboard_goes_on_too(tmp_path: Path) -> None:
    stopped(tmp_path, lambda trainer: trainer.stream.position == 3, tensorboard=True)
    run(ER, tmp_path)
    assert len(list((tmp_path / ER.folder).glob("events.out.tfevents*"))) == 2


def test_two_processes_do_not_write_one_folder(tmp_path: Path, undisturbed: Finished) -> None:
    with (
        locked(tmp_path / ER.folder),
        pytest.raises(UserError, match=r"another process is working on .*er-tiny"),
    ):
        run(ER, tmp_path)
    assert not list(tmp_path.iterdir())
    (tmp_path / f".{ER.folder}.lock").touch()  # left by a process that was killed
    assert same_run(run(ER, tmp_path), undisturbed)
    assert [path.name for path in tmp_path.iterdir()] == [ER.folder]


def damage_and_go_on(out: Path, case: int, undisturbed: Finished) -> str:
    """What becomes of an interrupted or finished run in one of whose files something changes."""
    generator = random.Random(case)
    folder = out / ER.folder
    if generator.random() < 0.3:
        shutil.copytree(undisturbed.folder, folder)
    else:
        interrupted(out, steps=generator.choice([1, 3, 4, 5]))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = generator.choice(files)
    content = bytearray(path.read_bytes())
    start = generator.randrange(len(content))
    match generator.choice(["flip", "cut", "insert", "zero"]):
        case "flip":
            content[start] ^= 1 << generator.randrange(8)
        case "cut":
            del content[start:]
        case "insert":
            content[start:start] = generator.randbytes(generator.choice([1, 3, 100]))
        case "zero":
            content[start : start + 50] = bytes(len(content[start : start + 50]))
    path.write_bytes(content)
    try:
        done = run(ER, out)
    except UserError:
        return f"{path.name} refused"
    results = lasting(done.result), lasting(undisturbed.result)
    for result in results:
        result.pop("versions")
    assert results[0] == results[1], f"case {case}"
    return f"{path.name} harmless"


@pytest.mark.parametrize("cases", [20, pytest.param(600, marks=pytest.mark.slow)])
def test_random_damage_is_refused_or_harmless(
    tmp_path: Path, undisturbed: Finished, cases: int
) -> None:
    ends = [damage_and_go_on(tmp_path / str(case), case, undisturbed) for case in range(cases)]
    assert {end.split()[-1] for end in ends} == {"refused", "harmless"}


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one checkpoint and not much more."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting a small file system is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_in_mid_run_loses_nothing(
    small_disk: Path, undisturbed: Finished
) -> None:
    ballast = small_disk / "ballast"

    def fill() -> None:
        with ballast.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

    with pytest.raises(UserError, match=r"no space left.*checkpoint of step 2 is kept in"):
        run(ER, small_disk, listeners=[AfterTask(1, fill)], checkpoint_every=0)
    assert checkpoints_in(small_disk / ER.folder) == ["step-2.onpro"]
    ballast.unlink()
    assert same_run(run(ER, small_disk), undisturbed)
