"""A kind of stream in a file of one's own: run, resumed, swept and drawn like any other."""

import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onpro.runs import read_config
from onpro.streams import find_kind, registry, stream_kind
from tests.cli.conftest import Command
from tests.cli.own_files import (
    forget,
    goes_on,
    interrupt,
    needs_its_file,
    nothing_imported,
    result,
)

TINY = ["--data", "tiny", "--limit-per-class", "6", "--memory", "20", "--device", "cpu"]
LATE = ["run", "er", "--stream", "./late.py", *TINY, "--out", "out"]

HEAD = """
from dataclasses import dataclass

from onpro.streams import StreamKind, register

"""

KIND = '''
@register("{name}", "a share of each task's images arrives in the task after it")
@dataclass(frozen=True)
class {cls}(StreamKind):
    """Some images arrive one task too late."""

    late: float = 20.0
    """Percentage of images that are late (default ours)."""

    def check(self):
        self.require_between(0, 100, "late")

    def arrivals(self, labels, task_of, random):
        late = [100 * random.random() < self.late for _ in labels]
        return [min(task_of[-1], task_of[k] + is_late) for k, is_late in zip(labels, late)]
'''

ONE = HEAD + KIND.format(cls="Late", name="late")
TWO = ONE + KIND.format(cls="Later", name="later")


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with nothing_imported(monkeypatch, registry, "_kinds"):
        yield


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "late.py"
    path.write_text(ONE)
    return path


def test_it_runs_with_its_settings_as_options(onpro: Command, file: Path, tmp_path: Path) -> None:
    said = result(onpro(*LATE, "--late", "30", "--json"))
    assert said["config"]["stream"] == {"kind": "late", "late": 30.0}
    assert Path(said["run"]).name.startswith("er-tiny-late-m20-s0-")
    config = json.loads((tmp_path / said["run"] / "config.json").read_text())
    assert config["stream_file"] == str(file)
    text = " ".join(onpro(*LATE, "--help").out.split())
    assert "Percentage of images that are late" in text


def test_help_and_mistakes_import_no_torch(file: Path) -> None:
    script = """
import sys
from onpro.cli import main
assert main(["run", "er", "--stream", "./late.py", "--help"]) == 0
assert main(["run", "er", "--stream", "./late.py", "--lat", "3"]) == 2
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-c", script]
    answer = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("chosen", ["later", "Later"])
def test_one_of_several_is_chosen_by_its_name_or_class(
    onpro: Command, file: Path, chosen: str
) -> None:
    file.write_text(TWO)
    said = result(onpro("run", "er", "--stream", f"./late.py:{chosen}", *TINY, "--json"))
    assert said["config"]["stream"]["kind"] == "later"


def test_a_changed_file_is_another_run(onpro: Command, file: Path) -> None:
    first = result(onpro(*LATE, "--json"))
    assert result(onpro(*LATE, "--json")) == first
    file.write_text(ONE + "\n")
    assert result(onpro(*LATE, "--json"))["run"] != first["run"]


@pytest.fixture
def interrupted(
    onpro: Command, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run that was stopped, as a process finds it that has not imported the file yet."""
    folder = interrupt(onpro, LATE, tmp_path / "out", monkeypatch, after=3)
    forget(registry._kinds, "late", "later")
    return folder


def test_an_interrupted_run_goes_on(onpro: Command, interrupted: Path) -> None:
    goes_on(onpro, interrupted, LATE)


def test_a_run_whose_file_is_gone_or_changed_is_refused(
    onpro: Command, interrupted: Path, file: Path
) -> None:
    needs_its_file(onpro, interrupted, file)


def test_another_process_gets_the_configuration(onpro: Command, file: Path, tmp_path: Path) -> None:
    said = result(onpro(*LATE, "--late", "30", "--json"))
    config = read_config(tmp_path / said["run"])
    sent = pickle.dumps(config)
    forget(registry._kinds, "late", "later")
    received = pickle.loads(sent)
    assert received.stream == stream_kind("late", late=30)
    assert received.identity == config.identity == said["identity"]
    assert received.stream_file == config.stream_file


def test_a_run_needs_no_file_to_be_reported(onpro: Command, file: Path) -> None:
    here = onpro(*LATE, "--late", "30", "--json")
    assert here.status == 0
    with_file = onpro("report", "out").out
    forget(registry._kinds, "late", "later")
    file.unlink()
    assert onpro("report", "out").out == with_file
    assert "stream=late (late=30.0)" in with_file


def test_a_figure_shows_it(onpro: Command, file: Path, tmp_path: Path) -> None:
    answer = onpro("figure", "stream", "--stream", "./late.py", "--late", "30", "--data", "tiny")
    assert answer.status == 0, answer.err
    assert (tmp_path / "stream.png").is_file()


@pytest.mark.thorough
def test_sweeps_and_tables_take_it_in_processes_of_their_own(
    onpro: Command, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "sweep.toml").write_text(
        '[common]\ndata = "tiny"\nmemory = 20\nlimit_per_class = 6\n'
        '[[runs]]\nmethod = "er"\nstream = ["disjoint", "./late.py"]\nlate = [10, 30]\n'
    )
    common = ["--out", "many", "--device", "cpu", "--workers", "2", "--format", "json"]
    answer = onpro("sweep", "sweep.toml", *common)
    assert answer.status == 0, answer.err
    assert len(list((tmp_path / "many").iterdir())) == 3

    part = ["--data", "tiny", "--methods", "er", "--memory", "20", "--seeds", "1"]
    streams = ["--stream", "./late.py", "--late", "30", "--limit-per-class", "6"]
    answer = onpro("table", "table1", *part, *streams, *common)
    assert answer.status == 0, answer.err
    assert len(list((tmp_path / "many").iterdir())) == 3, "a run of the sweep"


def test_a_sweep_knows_its_settings_and_mistakes(
    onpro: Command, file: Path, tmp_path: Path
) -> None:
    for stream, setting, sentence in (
        ("./late.py", "lat = 3", "line 4: there is no key 'lat'; did you mean 'late'?"),
        ("./late.py", "late = 300", "line 4: the late of the stream late must be between 0"),
        ("./missing.py", "late = 3", "line 3: there is no file "),
    ):
        text = f'[[runs]]\nmethod = "er"\nstream = "{stream}"\n{setting}\n'
        (tmp_path / "sweep.toml").write_text(text)
        answer = onpro("sweep", "sweep.toml", "--dry-run")
        assert answer.status == 2
        assert answer.err.startswith(f"onpro: sweep.toml, {sentence}"), answer.err
        assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("x = 1\nclass\n", "line 2: invalid syntax."),
        (
            ONE.replace('"late"', '"blurry"', 1),
            "the stream 'blurry' is already registered: choose another name.",
        ),
        (ONE.replace("@dataclass(frozen=True)", ""), "Late must be a dataclass: put @dataclass"),
        (ONE.replace("def arrivals", "def arrival"), "Late does not define arrivals."),
        (ONE.replace("(StreamKind)", ""), "Late must be derived from StreamKind."),
        (ONE.replace(": float = 20.0", ": float"), "the setting 'late' of Late needs a default."),
        ("x = 1\n", " registers no stream: put @register(…) above its class."),
    ],
)
def test_a_mistake_in_the_file_is_a_sentence(
    onpro: Command, file: Path, content: str, sentence: str
) -> None:
    file.write_text(content)
    answer = onpro(*LATE)
    assert answer.status == 2
    assert answer.err.count("\n") == 1
    assert str(file) in answer.err
    assert sentence in answer.err


def test_a_name_that_cannot_be_resolved_is_a_sentence(onpro: Command, file: Path) -> None:
    file.write_text(TWO)
    for name, sentence in (
        ("missing.py", "there is no file "),
        ("late.py", "has several streams, late, later: name one, as in late.py:late."),
        ("late.py:lateer", "there is no stream in late.py 'lateer'; did you mean"),
        ("late.py:blurry", "there is no stream in late.py 'blurry'"),
        ("a\0b.py", "cannot be used"),
    ):
        answer = onpro("run", "er", "--stream", name, *TINY)
        assert answer.status == 2
        assert sentence in answer.err


def test_python_takes_a_file_too(file: Path) -> None:
    assert find_kind(str(file)) is find_kind(f"{file}:late")
    assert stream_kind(str(file), late=30).values() == {"late": 30.0}
