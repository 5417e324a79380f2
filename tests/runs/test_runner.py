"""A run and its folder: complete, repeatable, or not there at all."""

import errno
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from onpro._version import __version__
from onpro.errors import UserError
from onpro.methods import settings_for
from onpro.runs import Finished, finished, prepare, run
from onpro.runs.result import gpu_processes
from onpro.training import EvaluationEvent, StepEvent
from tests.reports.made_up import result
from tests.tiny_runs import ER as CONFIG
from tests.tiny_runs import lasting

RESULT = {
    "method",
    "data",
    "memory",
    "seed",
    "accuracy",
    "average_accuracy",
    "average_forgetting",
    "average_forgetting_strict",
    "average_incremental_accuracy",
    "checksum",
    "confusion",
    "train_seconds",
    "eval_seconds",
    "identity",
    "steps",
    "images_seen",
    "device",
    "precision",
    "versions",
}


class Raising:
    """A listener that raises, or does something else, after the first task.

    The run has saved nothing by then that it could go on from.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def on_step(self, step: StepEvent) -> None:
        pass

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        if evaluated.task == 0:
            self.act()


def raising(error: BaseException) -> Raising:
    def act() -> None:
        raise error

    return Raising(act)


def timeless(done: Finished) -> dict[str, Any]:
    return lasting(done.result)


def losses(done: Finished) -> list[Any]:
    lines = (done.folder / "events.jsonl").read_text().splitlines()
    return [json.loads(line).get("terms") for line in lines]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(CONFIG, tmp_path_factory.mktemp("runs"))


def test_the_default_dtype_of_the_caller_changes_nothing(tmp_path: Path) -> None:
    usual = run(CONFIG, tmp_path / "usual").result
    torch.set_default_dtype(torch.float64)
    try:
        trainer = prepare(CONFIG)
        trainer.run()
        other = run(CONFIG, tmp_path / "other").result
    finally:
        torch.set_default_dtype(torch.float32)
    assert lasting(other) == lasting(usual)
    assert trainer.accuracy[-1] == usual["accuracy"][-1]


def test_the_folder_holds_three_files_and_nothing_else(done: Finished) -> None:
    assert done.folder.name == CONFIG.folder
    names = {path.name for path in done.folder.iterdir()}
    assert names == {"config.json", "events.jsonl", "result.json"}
    assert [path.name for path in done.folder.parent.iterdir()] == [CONFIG.folder]


def test_the_configuration_is_all_that_is_needed_to_repeat_the_run(done: Finished) -> None:
    config = json.loads((done.folder / "config.json").read_text())
    assert config.items() >= json.loads(json.dumps(CONFIG.what())).items()
    assert config["versions"].keys() >= {"onpro", "python", "torch", "numpy"}
    assert config["versions"]["onpro"] == __version__
    assert config["hardware"]


def test_the_result_is_what_is_returned_and_has_every_key(done: Finished) -> None:
    assert json.loads((done.folder / "result.json").read_text()) == done.result
    assert set(done.result) >= RESULT
    assert done.result["method"] == "er"
    assert done.result["data"] == "tiny"
    assert (done.result["memory"], done.result["seed"]) == (20, 0)
    assert (done.result["device"], done.result["precision"]) == ("cpu", "fp32")
    assert done.result["steps"] == 6
    assert done.result["images_seen"] >= 48


def test_accuracies_are_square_and_blank_above_the_diagonal(done: Finished) -> None:
    accuracy = done.result["accuracy"]
    assert [len(row) for row in accuracy] == [3, 3, 3]
    for task, row in enumerate(accuracy):
        assert all(0 <= value <= 100 for value in row[: task + 1])
        assert row[task + 1 :] == [None] * (2 - task)
    assert done.result["average_accuracy"] == pytest.approx(sum(accuracy[-1]) / 3)


def test_the_confusion_matrix_counts_every_test_image(done: Finished) -> None:
    confusion = done.result["confusion"]
    assert [sum(row) for row in confusion] == [8] * 6
    right = sum(confusion[k][k] for k in range(6))
    assert done.result["average_accuracy"] == pytest.approx(100 * right / 48)


def test_every_event_is_a_line(done: Finished) -> None:
    lines = (done.folder / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [event["event"] for event in events]
    assert kinds.count("evaluation") == 3
    assert kinds.count("step") >= 3
    assert [e["step"] for e in events] == sorted(e["step"] for e in events)
    assert events[-1]["accuracy"] == done.result["accuracy"][-1]


@pytest.mark.parametrize("method", ["er", "onpro"])
def test_one_seed_gives_one_result_and_another_seed_another(tmp_path: Path, method: str) -> None:
    config = replace(CONFIG, method=method, settings=settings_for(method, "tiny"))
    first, second = (run(config, tmp_path / where) for where in ("a", "b"))
    other = run(replace(config, seed=1), tmp_path / "a")
    assert timeless(first) == timeless(second)
    assert losses(first) == losses(second)
    assert losses(first) != losses(other)


def test_a_finished_run_is_found_again(done: Finished, tmp_path: Path) -> None:
    assert finished(CONFIG, done.folder.parent) == done
    assert finished(CONFIG, tmp_path) is None
    assert finished(replace(CONFIG, seed=1), done.folder.parent) is None


def test_a_run_that_is_still_running_is_not_finished(tmp_path: Path) -> None:
    seen: list[Finished | None] = []
    run(CONFIG, tmp_path, listeners=[Raising(lambda: seen.append(finished(CONFIG, tmp_path)))])
    assert seen == [None]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a defect")])
def test_a_run_that_does_not_end_leaves_no_folder(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)):
        run(CONFIG, tmp_path, listeners=[raising(error)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("a defect")])
def test_a_finished_run_outlives_a_repetition_that_fails(
    tmp_path: Path, error: BaseException
) -> None:
    before = run(CONFIG, tmp_path)
    with pytest.raises(type(error)):
        run(CONFIG, tmp_path, listeners=[raising(error)], fresh=True)
    assert finished(CONFIG, tmp_path) == before
    assert {p.name for p in before.folder.iterdir()} == {
        "config.json",
        "events.jsonl",
        "result.json",
    }
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG.folder]


def test_a_repetition_takes_the_place_of_the_earlier_run(tmp_path: Path) -> None:
    before = run(CONFIG, tmp_path)
    (before.folder / "result.json").write_text('"old"')
    run(CONFIG, tmp_path, fresh=True)
    again = finished(CONFIG, tmp_path)
    assert again is not None
    assert timeless(again) == timeless(before)
    assert [path.name for path in tmp_path.iterdir()] == [CONFIG.folder]


def test_a_damaged_result_is_told_in_a_sentence(tmp_path: Path) -> None:
    before = run(CONFIG, tmp_path)
    (before.folder / "result.json").write_text("{")
    with pytest.raises(UserError, match=r"result\.json cannot be read"):
        finished(CONFIG, tmp_path)


@pytest.mark.parametrize("when", ["from the start", "later"])
def test_a_disk_that_is_full_is_told_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def fill() -> None:
        monkeypatch.setattr(os, "fsync", full)

    if when == "from the start":
        fill()
    with pytest.raises(UserError, match=r"cannot write in .*: no space left .*choose another"):
        run(CONFIG, tmp_path, listeners=[Raising(fill)])
    assert not list(tmp_path.iterdir())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of a given size, where the user may."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = False

    def mount(size: str) -> Path:
        nonlocal mounted
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("mounting a small file system is not allowed here")
        mounted = True
        return place

    yield mount
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("size", ["4k", "8k"], ids=["no room to log", "no room to save"])
def test_a_disk_that_is_really_full_is_told_and_nothing_is_left(
    small_disk: Callable[[str], Path], size: str
) -> None:
    disk = small_disk(size)
    with pytest.raises(UserError, match=r"cannot write in .*: no space left"):
        run(CONFIG, disk / "runs")
    assert not list((disk / "runs").iterdir())


def test_a_disk_with_some_room_is_enough(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("64m")
    assert finished(CONFIG, disk) is None
    assert run(CONFIG, disk).folder.is_dir()


def test_tensorboard_logs_into_the_run_folder(tmp_path: Path) -> None:
    folder = run(CONFIG, tmp_path, tensorboard=True).folder
    assert any(re.match(r"events\.out\.tfevents", path.name) for path in folder.iterdir())


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_works_on_a_cpu_too(tmp_path: Path, precision: Any) -> None:
    done = run(replace(CONFIG, precision=precision), tmp_path)
    assert done.result["precision"] == precision
    assert 0 <= done.result["average_accuracy"] <= 100


def test_classes_are_named_in_their_order_of_arrival(tmp_path: Path) -> None:
    natural = run(CONFIG, tmp_path).result["classes"]
    drawn = run(replace(CONFIG, class_order="random"), tmp_path).result["classes"]
    assert natural == [f"stripes {k}" for k in range(6)]
    assert sorted(drawn) == natural
    assert drawn != natural


def test_settings_of_another_method_are_refused() -> None:
    with pytest.raises(UserError, match="er takes ERSettings, not OnProSettings: settings_for"):
        prepare(replace(CONFIG, settings=settings_for("onpro", "tiny")))


def test_a_finished_run_shows_itself_in_notebooks() -> None:
    content = result(tasks=2) | {"data": "<b>"}
    run = Finished(Path("runs/one"), content)
    assert repr(run) == f"Finished(folder={Path('runs/one')!r})"
    shown = run._repr_html_()
    assert "<th>task 2</th>" in shown
    assert "after task 2" in shown
    assert "&lt;b&gt;" in shown
    assert f"average {content['average_accuracy']:.1f}" in shown
    assert shown.count("<td></td>") == 1, "task 2 after task 1"


@pytest.mark.parametrize(
    ("script", "count"),
    [("echo 101; echo 102", 2), ("echo 101", 1), ("exit 9", None), ("", None), (None, None)],
)
def test_processes_on_a_gpu_are_counted(
    script: str | None, count: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    if script is not None:
        tool.write_text(f'#!/bin/sh\n[ "$1" = --id=GPU-1a2b ] || exit 1\n{script}\n')
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    properties = SimpleNamespace(uuid="1a2b")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    assert gpu_processes(torch.device("cuda")) == count
    assert gpu_processes(torch.device("cpu")) is None
