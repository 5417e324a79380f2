"""`onpro resume`, and a run that is interrupted in every way a process can be."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest

from onpro.cli.live import Bar, Live
from onpro.cli.signals import stop_requests
from onpro.experiments.executors import RunEvent, execute
from onpro.runs.files import locked
from onpro.training import StepEvent
from tests.cli.conftest import Answer, Command
from tests.tiny_runs import lasting

TINY = ["--data", "tiny", "--limit-per-class", "8", "--device", "cpu", "--out", "out"]


def result(answer: Answer) -> dict[str, Any]:
    """What `--json` printed, without folder and times."""
    assert answer.status == 0, answer.err
    said = json.loads(answer.out.splitlines()[-1])
    return {key: value for key, value in lasting(said).items() if key != "run"}


def signalled(number: int, times: int = 1) -> Callable[[Bar, StepEvent], None]:
    """A step that is hit by a signal, as often as told."""

    def on_step(self: Bar, step: StepEvent) -> None:
        if step.step == 4:
            for _ in range(times):
                signal.raise_signal(number)

    return on_step


def interrupt(
    onpro: Command, number: int = signal.SIGTERM, method: str = "er", *options: str
) -> Answer:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bar, "on_step", signalled(number))
        return onpro("run", method, *TINY, *options)


def only_run(tmp_path: Path) -> Path:
    (folder,) = (path for path in (tmp_path / "out").iterdir() if path.is_dir())
    return folder.relative_to(tmp_path)


@pytest.mark.parametrize("options", [["er"], ["onpro", "--rotations", "1"]], ids=["er", "onpro"])
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_the_step_saves_and_says_how_to_go_on(
    onpro: Command, tmp_path: Path, number: int, status: int, options: list[str]
) -> None:
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip("the tests themselves ignore it, as nohup has them do")
    expected = result(onpro("run", *options, *TINY, "--out", "elsewhere", "--json"))
    stopped = interrupt(onpro, number, *options)
    folder = only_run(tmp_path)
    assert stopped.status == status
    assert stopped.err.splitlines()[-1] == (
        f"onpro: interrupted; step 4 of 6 is saved, resume with: onpro resume {folder}"
    )
    assert not stopped.out.count("average accuracy")
    assert result(onpro("resume", str(folder), "--json")) == expected
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "events.jsonl",
        "model.onpro",
        "result.json",
    ]


def interrupt_several(onpro: Command, tmp_path: Path, *options: str) -> Answer:
    """Interrupt a command with several runs, each in a process, once one has a checkpoint."""

    class Terminated(Live):
        def show(self, event: RunEvent) -> None:
            super().show(event)
            if any(tmp_path.glob("out/*/checkpoint/*")):
                signal.raise_signal(signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onpro.cli.training.Live", Terminated)
        patch.setitem(execute.__globals__, "LOOK_EVERY", 0.002)
        return onpro("run", *SEVERAL, *options)


SEVERAL = ["er", "--data", "tiny", "--batch-size", "2", "--seeds", "3", "--workers", "2"]
SEVERAL += ["--device", "cpu", "--out", "out", "--checkpoint-every", "0.000001"]


@pytest.mark.thorough
def test_of_several_runs_the_same_command_goes_on_with_what_is_left(
    onpro: Command, tmp_path: Path
) -> None:
    stopped = interrupt_several(onpro, tmp_path)
    assert stopped.status == 143
    assert not multiprocessing.active_children()
    assert stopped.err.splitlines()[-1] == (
        "onpro: interrupted; what is done so far is kept, and the same command resumes it."
    )
    again = onpro("run", *SEVERAL, "--json")
    assert again.status == 0, again.err
    assert "resumes from step" in again.err
    assert [run["seed"] for run in json.loads(again.out)] == [0, 1, 2]


@pytest.mark.thorough
def test_of_several_runs_that_start_over_those_begun_can_go_on(
    onpro: Command, tmp_path: Path
) -> None:
    first = onpro("run", *SEVERAL, "--json")
    assert first.status == 0, first.err
    stopped = interrupt_several(onpro, tmp_path, "--fresh")
    hint = stopped.err.splitlines()[-1]
    assert hint.startswith("onpro: interrupted; resume what was begun with: onpro resume out/er-")
    command = hint.partition("onpro resume ")[2].split()
    assert all(path.endswith(".new") for path in command)
    assert onpro("resume", *command).status == 0
    assert not list(tmp_path.glob("out/*.new"))
    again = onpro("run", *SEVERAL, "--json")
    assert again.err.count("already finished") == 3
    assert [*map(lasting, json.loads(again.out))] == [*map(lasting, json.loads(first.out))]


def test_a_mistake_of_all_runs_is_told_as_one(onpro: Command, tmp_path: Path) -> None:
    asked = ["run", "onpro", *SEVERAL[1:], "--projection", "4096"]
    answer = onpro(*asked)
    assert answer.status == 2
    assert "wider than the encoder's 160" in answer.err.splitlines()[-1]
    assert answer.err.count("failed: onpro-tiny") == 3
    assert not list(tmp_path.glob("out/*"))


def test_the_same_command_goes_on_by_itself_and_fresh_starts_over(
    onpro: Command, caplog: pytest.LogCaptureFixture
) -> None:
    interrupt(onpro)
    first = result(onpro("run", "er", *TINY, "--json"))
    assert "resumes from step 4 of 6 (onpro resume --fresh starts over)" in caplog.text
    interrupt(onpro, signal.SIGTERM, "er", "--fresh")
    caplog.clear()
    assert result(onpro("run", "er", *TINY, "--fresh", "--json")) == first
    assert not caplog.records


def test_a_finished_run_is_shown(onpro: Command, tmp_path: Path) -> None:
    first = onpro("run", "er", *TINY)
    again = onpro("resume", str(only_run(tmp_path)))
    assert "already finished" in again.err
    assert again.status == 0
    assert again.out == first.out.partition("(the data set's values)\n")[2]


def test_a_run_named_twice_is_trained_once(onpro: Command, tmp_path: Path) -> None:
    interrupt(onpro)
    folder = only_run(tmp_path)
    answer = onpro("resume", str(folder), str(tmp_path / folder), "--json")
    assert answer.status == 0
    assert isinstance(json.loads(answer.out.splitlines()[-1]), dict), "one run, and no list"
    assert answer.err.count("steps") == 1


@pytest.mark.parametrize("options", [[], ["--fresh"]])
def test_a_finished_run_and_its_begun_repetition_are_one(
    onpro: Command, tmp_path: Path, options: list[str]
) -> None:
    expected = result(onpro("run", "er", *TINY, "--json"))
    assert interrupt(onpro, signal.SIGTERM, "er", "--fresh").status == 143
    folders = [str(path) for path in sorted((tmp_path / "out").iterdir())]
    assert [path.endswith(".new") for path in folders] == [False, True]
    answer = onpro("resume", *folders, "--json", *options)
    assert result(answer) == expected
    assert answer.err.count("average accuracy") == 1
    assert [str(path) for path in (tmp_path / "out").iterdir()] == folders[:1]


@pytest.mark.thorough
def test_several_runs_are_a_list(onpro: Command, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        interrupt(onpro, signal.SIGTERM, "er", "--seed", seed)
    answer = onpro("resume", *map(str, sorted((tmp_path / "out").iterdir())), "--json")
    assert [run["seed"] for run in json.loads(answer.out)] == [1, 2]


def test_what_is_no_run_is_passed_over_among_several(onpro: Command, tmp_path: Path) -> None:
    folders = unlike(onpro, tmp_path)
    (tmp_path / "out" / "notes.log").write_text("mine")
    answer = onpro("resume", "out/notes.log", *folders, "--json")
    assert answer.status == 0
    assert "skipped out/notes.log: it is not the folder of a run" in answer.err
    assert len(json.loads(answer.out)) == 2


def test_nothing_but_other_things_is_a_mistake(onpro: Command, tmp_path: Path) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_text("mine")
    answer = onpro("resume", "a.log", "b.log")
    assert answer.status == 2
    assert answer.err.endswith("onpro: none of these is the folder of a run.\n")


def test_unlike_runs_have_no_mean(onpro: Command, tmp_path: Path) -> None:
    answer = onpro("resume", *unlike(onpro, tmp_path))
    assert answer.out.count("average accuracy") == 2
    assert "2 runs" not in answer.out


def unlike(onpro: Command, tmp_path: Path) -> list[str]:
    """The folders of two finished runs of different methods."""
    for name in ("er", "agem"):
        small = ("--data", "tiny", "--limit-per-class", "6", "--device", "cpu", "--out", "out")
        assert onpro("run", name, *small).status == 0
    return [f"out/{folder.name}" for folder in sorted((tmp_path / "out").iterdir())]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"accuracy": "high"}'])
def test_a_damaged_result_costs_no_checkpoint(onpro: Command, tmp_path: Path, text: str) -> None:
    (folder, _) = unlike(onpro, tmp_path)
    checkpoint = tmp_path / folder / "checkpoint" / "step-3.onpro"
    checkpoint.parent.mkdir()
    checkpoint.write_text("kept")
    (tmp_path / folder / "result.json").write_text(text)
    answer = onpro("resume", folder)
    assert answer.status == 2
    assert f"remove {folder}/result.json to resume" in answer.err
    assert answer.err.count("\n") == 1
    assert checkpoint.exists()


def test_a_run_can_be_resumed_from_inside_its_folder(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt(onpro)
    folder = only_run(tmp_path)
    monkeypatch.chdir(folder)
    assert onpro("resume", ".").status == 0
    assert (tmp_path / folder / "result.json").is_file()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"precision": "fp8"}, "config.json cannot be used: precision must be 'fp32' or"),
        ({"device": "cuda"}, "was begun on a GPU: resume it where there is one"),
        ({"memory": 60}, "config.json cannot be used: it has been changed since the run began"),
        ({"data": "digts", "identity": ...}, "no data set 'digts'; did you mean 'digits'?"),
    ],
)
def test_a_configuration_changed_by_hand_is_told_in_one_sentence(
    onpro: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    sentence: str,
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    interrupt(onpro)
    path = only_run(tmp_path) / "config.json"
    values = json.loads(path.read_text()) | change
    path.write_text(json.dumps({key: value for key, value in values.items() if value is not ...}))
    answer = onpro("resume", str(path.parent))
    assert answer.status == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_notes_on_versions_and_hardware_may_be_damaged(onpro: Command, tmp_path: Path) -> None:
    interrupt(onpro)
    path = only_run(tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"versions": 3, "hardware": None}))
    assert onpro("resume", str(path.parent)).status == 0


def test_data_that_have_moved_are_named(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    interrupt(onpro, signal.SIGTERM, "er", "--data-dir", "data")
    path = only_run(tmp_path) / "config.json"
    values = json.loads(path.read_text())
    del values["identity"]  # else the change would be noticed
    path.write_text(json.dumps(values | {"data": "cifar10"}))
    answer = onpro("resume", str(path.parent), "--data-dir", "moved")
    assert "the data folder moved does not exist; create it, or correct --data-dir." in answer.err


def test_resume_can_start_over(onpro: Command, tmp_path: Path) -> None:
    expected = result(onpro("run", "er", *TINY, "--out", "elsewhere", "--json"))
    interrupt(onpro)
    folder = only_run(tmp_path)
    for path in (folder / "checkpoint").iterdir():
        path.write_bytes(b"damaged")
    refused = onpro("resume", str(folder))
    assert refused.status == 2
    assert "no checkpoint can be read" in refused.err
    assert "--fresh" in refused.err
    assert result(onpro("resume", str(folder), "--fresh", "--json")) == expected


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["resume"], "name at least one run folder"),
        (["resume", "nowhere"], "there is no folder nowhere"),
        (["resume", "."], "is not the folder of a run"),
        (["resume", __file__], "is a file: name the folder of a run"),
        (["resume", ".", "--checkpoint-every", "-1"], "0 seconds or more"),
        (["run", "er", *TINY, "--checkpoint-every", "-1"], "0 seconds or more"),
    ],
)
def test_mistakes_are_one_sentence(onpro: Command, arguments: list[str], sentence: str) -> None:
    answer = onpro(*arguments)
    assert answer.status == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1


def test_a_second_ctrl_c_ends_at_once(onpro: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bar, "on_step", signalled(signal.SIGINT, times=2))
    answer = onpro("run", "er", *TINY, "--checkpoint-every", "0")
    assert answer.status == 130
    assert "step 2 of 6 is saved" in answer.err, "the fourth step was not waited for"


def test_a_diverging_run_is_told_with_what_is_kept(onpro: Command, tmp_path: Path) -> None:
    wild = ("--learning-rate", "1e9", "--weight-decay", "1e9")
    answer = onpro("run", "er", *TINY, *wild, "--checkpoint-every", "0")
    assert answer.status == 2
    assert "diverged at step" in answer.err
    assert not list((tmp_path / "out").iterdir()), "no state of it was good"


def test_handlers_are_put_back_and_an_ignored_signal_stays_ignored() -> None:
    for number in (signal.SIGHUP, signal.SIGINT):
        before = signal.signal(number, signal.SIG_IGN)
        try:
            with stop_requests() as stop:
                assert signal.getsignal(number) is signal.SIG_IGN
                assert stop() is None
        finally:
            signal.signal(number, before)
    with pytest.raises(KeyboardInterrupt), stop_requests():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# As processes

LONG = ["--data", "tiny", "--batch-size", "1", "--limit-per-class", "40", "--device", "cpu"]
EVERY_STEP = ["--checkpoint-every", "0.000001"]
WARM = multiprocessing.get_context("forkserver")
WARM.set_forkserver_preload(["onpro.cli.training", "torch._dynamo", "safetensors.torch"])
START = """
import os, signal, sys
os.chdir({folder!r})
file = os.open("said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
os.dup2(file, 1), os.dup2(file, 2)
# a shell that starts a job in the background may have it ignore Ctrl-C: undo that
signal.signal(signal.SIGINT, signal.default_int_handler)
from onpro.cli import main
sys.exit(main({arguments!r}))
"""


class Running:
    """`onpro` in a process of its own, forked from one that has imported everything already."""

    startup = 0.3
    """Seconds until it trains, about."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        code = START.format(folder=str(folder), arguments=arguments)
        self._process = WARM.Process(target=exec, args=(code, {}))
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.send(signal.SIGKILL)
        self.status()

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def send(self, number: int) -> None:
        if self._process.is_alive() and self._process.pid:
            os.kill(self._process.pid, number)

    def status(self) -> int | None:
        """Its exit status, once it has ended by itself or by a signal."""
        self._process.join(timeout=600)
        return self._process.exitcode

    def said(self) -> str:
        return (self.folder / "said").read_text()


class Cold(Running):
    """`python -m onpro`, as a user starts it."""

    startup = 3.0

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        with (folder / "said").open("w") as said:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "onpro", *arguments], cwd=folder, stdout=said, stderr=said
            )

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    def send(self, number: int) -> None:
        self._popen.send_signal(number)

    def status(self) -> int | None:
        return self._popen.wait(timeout=600)


def newest(folder: Path) -> int:
    """The last step saved below a folder; −1 where none is."""
    return max((int(p.stem[5:]) for p in folder.glob("runs/*/checkpoint/step-*.onpro")), default=-1)


def wait_for_progress(started: Running) -> None:
    """Wait until a further checkpoint is saved."""
    before = newest(started.folder)
    while newest(started.folder) in (before, -1):
        assert started.is_alive(), started.said()
        time.sleep(0.002)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The result of the long run in one go."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Running(folder, "run", "er", *LONG) as started:
        assert started.status() == 0
    return result_of(folder)


def timeless(path: Path) -> Any:
    return lasting(json.loads(path.read_text()))


def result_of(folder: Path) -> Any:
    (path,) = folder.glob("runs/*/result.json")
    assert not (path.parent / "checkpoint").exists()
    return timeless(path)


def kill_until_finished(start: type[Running], folder: Path, kills: int) -> None:
    """Run and kill, a moment after progress and now and then earlier; at last let it finish."""
    draw = random.Random(0)
    for kill in range(kills):
        with start(folder, "run", "er", *LONG, *EVERY_STEP) as started:
            if kill % 4 == 3:
                time.sleep(draw.uniform(0, start.startup))
            else:
                wait_for_progress(started)
                time.sleep(draw.uniform(0, 0.05))
            started.send(signal.SIGKILL)
        assert not list(folder.glob("runs/*/result.json")), "too late a kill"
    with start(folder, "run", "er", *LONG) as started:
        assert started.status() == 0
        assert "resumes from step" in started.said()


@pytest.mark.thorough
def test_killed_three_times_a_run_ends_the_same(tmp_path: Path, expected: Any) -> None:
    kill_until_finished(Running, tmp_path, 3)
    assert result_of(tmp_path) == expected


@pytest.mark.slow
@pytest.mark.parametrize("start", [Running, Cold])
def test_killed_twenty_five_times_a_run_ends_the_same(
    tmp_path: Path, expected: Any, start: type[Running]
) -> None:
    kill_until_finished(start, tmp_path, 25)
    assert result_of(tmp_path) == expected


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)]
)
def test_a_process_that_gets_a_signal_can_be_resumed(
    tmp_path: Path, expected: Any, number: signal.Signals
) -> None:
    with Running(tmp_path, "run", "er", *LONG, *EVERY_STEP) as started:
        wait_for_progress(started)
        started.send(number)
        assert started.status() == 128 + number
    (folder,) = (tmp_path / "runs").iterdir()
    last = started.said().splitlines()[-1]
    assert last == (
        f"onpro: interrupted; step {newest(tmp_path)} of 240 is saved, "
        f"resume with: onpro resume runs/{folder.name}"
    )
    with Running(tmp_path, *last.split()[-2:]) as resumed:
        assert resumed.status() == 0
    assert result_of(tmp_path) == expected


def test_a_second_process_is_refused(tmp_path: Path, expected: Any, onpro: Command) -> None:
    with Running(tmp_path, "run", "er", *LONG, *EVERY_STEP) as first:
        wait_for_progress(first)
        first.send(signal.SIGSTOP)  # else it might end before the others have been refused
        (folder,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
        second = onpro("run", "er", *LONG, "--out", str(folder.parent))
        third = onpro("resume", str(folder), "--fresh")
        first.send(signal.SIGCONT)
        assert first.status() == 0, "it went on undisturbed"
    assert result_of(tmp_path) == expected
    for refused in (second, third):
        assert refused.status == 2
        assert f"another process is working on {folder}" in refused.err
    with locked(folder):
        pass  # nothing holds it any longer
