"""A run never harms what it has not written itself, whatever lies in its folder."""

import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.experiments.plan import Place, plan
from onpro.runs import Finished, Interrupted, finished, prepare, read_config, run, run_in
from onpro.runs.files import Held, is_held, locked
from onpro.runs.result import describe
from onpro.training import EvaluationEvent, StepEvent
from tests.tiny_runs import ER


class Failing:
    """Fails after the first task, before anything could be saved."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error or RuntimeError("a defect")

    def on_step(self, step: StepEvent) -> None:
        pass

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        raise self.error


def contents(folder: Path) -> dict[str, bytes | str | None]:
    """All files below a folder, with what they hold or where they lead."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def stopped(folder: Path, steps: int = 3, **how: Any) -> None:
    """A run that was stopped after so many steps."""
    trainer = prepare(ER)

    def stop() -> int | None:
        return signal.SIGTERM if trainer.stream.position >= steps else None

    with pytest.raises(Interrupted):
        run_in(folder, ER, trainer=trainer, stop=stop, **how)


def model(folder: Path) -> None:
    (folder / "config.json").write_text('{"architectures": ["Foreign"], "hidden_size": 768}')
    (folder / "weights.safetensors").write_bytes(b"weights")


def foreign_result(folder: Path) -> None:
    (folder / "result.json").write_text('{"score": 1.0}')


def foreign_checkpoint(folder: Path) -> None:
    (folder / "checkpoint").mkdir()
    (folder / "checkpoint" / "step-7.onpro").write_bytes(b"not ours")
    (folder / "checkpoint" / "model.pt").write_bytes(b"weights")


def another_run(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(describe(replace(ER, seed=5))))


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("put", [model, foreign_result, foreign_checkpoint, another_run])
def test_a_folder_of_somebody_else_is_refused_and_left_as_it_is(
    tmp_path: Path, put: Callable[[Path], None], fresh: bool
) -> None:
    folder = tmp_path / "X"
    folder.mkdir()
    put(folder)
    before = contents(tmp_path)
    with pytest.raises(UserError):
        run_in(folder, ER, fresh=fresh, listeners=[Failing()])
    assert contents(tmp_path) == before


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("put", [model, foreign_result, foreign_checkpoint, another_run])
def test_a_folder_beside_it_that_is_no_repetition_is_left_as_it_is(
    tmp_path: Path, put: Callable[[Path], None], fresh: bool
) -> None:
    done = run_in(tmp_path / "X", ER)
    (tmp_path / "X.new").mkdir()
    put(tmp_path / "X.new")
    before = contents(tmp_path)
    if fresh or put is foreign_result:
        with pytest.raises(UserError, match=r"X\.new"):
            run_in(tmp_path / "X", ER, fresh=fresh)
    else:
        assert run_in(tmp_path / "X", ER).result == done.result
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "error", [RuntimeError("a defect"), KeyboardInterrupt(), OSError(28, "No space left")]
)
def test_a_copied_configuration_and_notes_outlive_a_failure(
    tmp_path: Path, error: BaseException
) -> None:
    folder = tmp_path / "X"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(describe(ER)))
    (folder / "notes.txt").write_text("precious")
    names = set(contents(tmp_path))
    with pytest.raises(BaseException, match=r"defect|interrupted|no space left"):
        run_in(folder, read_config(folder), listeners=[Failing(error)])
    assert set(contents(tmp_path)) == names
    assert (folder / "notes.txt").read_text() == "precious"
    assert read_config(folder) == ER


def test_notes_outlive_a_repetition_and_a_new_start(tmp_path: Path) -> None:
    folder = tmp_path / "X"
    stopped(folder)
    (folder / "notes.txt").write_text("precious")
    (folder / "checkpoint" / "notes.txt").write_text("precious too")
    done = run_in(folder, ER, fresh=True)
    run_in(folder, ER, fresh=True)
    assert set(contents(folder)) == {
        "checkpoint",
        "checkpoint/notes.txt",
        "config.json",
        "events.jsonl",
        "notes.txt",
        "result.json",
    }
    assert done.folder == folder
    assert [path.name for path in tmp_path.iterdir()] == ["X"]


@pytest.mark.parametrize("name", ["config.json", "events.jsonl", "result.json", "checkpoint"])
def test_links_in_a_folder_received_from_others_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "X"
    stopped(folder)
    outside = tmp_path / "outside"
    if (folder / name).exists():
        (folder / name).rename(outside)
    else:
        outside.write_text("precious")
    (folder / name).symlink_to(outside)
    before = contents(tmp_path)
    for fresh in (False, True):
        with pytest.raises(UserError, match=r"is a link|cannot be read"):
            run_in(folder, ER, fresh=fresh)
    assert contents(tmp_path) == before


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / ".X.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot write in"):
        run_in(tmp_path / "X", ER)
    assert (tmp_path / "precious").read_text() == "precious"


def test_what_cannot_be_read_is_not_taken_for_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "X"
    stopped(folder)
    before = contents(tmp_path)
    scandir = os.scandir

    def refusing(path: Any) -> Any:
        if Path(path).name == "checkpoint":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refusing)  # a super-user may read anything
        with pytest.raises(UserError, match=r"checkpoint cannot be read: Permission denied"):
            run_in(folder, ER)
    assert contents(tmp_path) == before


def test_a_folder_under_two_names_has_one_lock(tmp_path: Path) -> None:
    (tmp_path / "X").mkdir()
    (tmp_path / "other name").symlink_to(tmp_path / "X")
    with locked(tmp_path / "X"):
        assert is_held(tmp_path / "other name")
        with pytest.raises(Held):
            run_in(tmp_path / "other name", ER)


def test_a_finished_run_is_not_trained_again_unless_asked(tmp_path: Path) -> None:
    done = run(ER, tmp_path)
    trainer = prepare(ER)  # by another process that looked before the run was finished
    again = run(ER, tmp_path, trainer=trainer)
    assert again == done
    assert trainer.stream.position == 0


def test_a_changed_configuration_is_noticed_before_the_first_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / ER.folder
    folder.mkdir()
    values = json.loads(json.dumps(describe(ER)))
    (folder / "config.json").write_text(json.dumps(values | {"memory": 60}))
    with pytest.raises(UserError, match="has been changed since the run began"):
        read_config(folder)
    with pytest.raises(UserError, match="has been changed since the run began"):
        run(ER, tmp_path)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run(ER, tmp_path_factory.mktemp("done"))


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def test_every_flipped_digit_of_a_result_is_noticed(done: Finished, tmp_path: Path) -> None:
    folder = tmp_path / ER.folder
    shutil.copytree(done.folder, folder)
    text = (folder / "result.json").read_text()
    digits = [at for at, letter in enumerate(text) if letter.isdigit()]
    for at in digits:
        other = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
        if parsed(other) == done.result:  # the last digit of a number may not count
            continue
        (folder / "result.json").write_text(other)
        with pytest.raises(UserError, match=r"result\.json"):
            finished(ER, tmp_path)
    assert len(digits) > 100


def test_a_result_in_the_folder_of_another_run_is_noticed(done: Finished, tmp_path: Path) -> None:
    other = replace(ER, seed=1)
    shutil.copytree(done.folder, tmp_path / other.folder)
    with pytest.raises(UserError, match="is the result of another run"):
        finished(other, tmp_path)


def test_an_older_result_without_a_checksum_is_read(done: Finished, tmp_path: Path) -> None:
    folder = tmp_path / ER.folder
    shutil.copytree(done.folder, folder)
    older = {k: v for k, v in done.result.items() if k not in ("checksum", "identity")}
    (folder / "result.json").write_text(json.dumps(older))
    assert finished(ER, tmp_path) == Finished(folder, older)


def test_looking_changes_nothing(tmp_path: Path) -> None:
    from onpro.experiments.experiment import Setup

    done = run(ER, tmp_path)
    stopped(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere" / "checkpoint", done.folder / "checkpoint")
    shutil.rmtree(tmp_path / "elsewhere")
    before = contents(tmp_path)
    request = Setup("er", "tiny", 20, (0,), stream=(("limit_per_class", 8),))
    planned = plan([request], tmp_path, Place())
    assert [run.state for run in planned.runs()] == ["done"]
    assert not is_held(done.folder)
    assert contents(tmp_path) == before


def test_who_only_looks_keeps_nobody_from_working(tmp_path: Path) -> None:
    folder = tmp_path / "X"
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            is_held(folder)

    watchers = [threading.Thread(target=look) for _ in range(3)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(300):
            with locked(folder):
                pass
    finally:
        over.set()
        for watcher in watchers:
            watcher.join()
