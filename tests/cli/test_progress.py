"""What a terminal shows of a run on its way."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onpro.cli.live import Bar, Live
from onpro.data.progress import showing
from onpro.experiments.executors import RunEvent, RunRequest
from onpro.methods import settings_for
from onpro.runs import RunConfig, prepare
from onpro.training import EvaluationEvent, StepEvent, Trainer
from tests.tiny_runs import ER

TERMS = {"a_rather_long_term": 1.0, "another_long_term": 2.0, "[red]": 3.0}

Drawn = Callable[..., str]


@pytest.fixture
def trainer() -> Trainer:
    return prepare(RunConfig("er", settings_for("er", "tiny"), data="tiny", device="cpu"))


@pytest.fixture
def drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trainer: Trainer
) -> Drawn:
    """Gives the line with the bar after something has happened to the run."""

    def draw(happens: Callable[[Bar], None], columns: int = 80) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        with Bar("er on tiny") as bar:
            happens(bar.follow(trainer))
        plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
        return re.split(r"[\r\n]+", plain.strip())[-1]

    return draw


def test_the_bar_moves_with_the_stream_and_not_only_when_steps_are_logged(
    drawn: Drawn, trainer: Trainer
) -> None:
    def step(bar: Bar) -> None:
        next(trainer.steps())

    assert [drawn(step).split()[1] for _ in range(3)] == ["1/36", "2/36", "3/36"]


def test_a_rehearsal_shows_its_steps(drawn: Drawn, trainer: Trainer) -> None:
    def rehearse(bar: Bar) -> None:
        trainer.stepper.rehearsed = 40

    assert drawn(rehearse).endswith("rehearsal, step 40")
    trainer.stepper.rehearsed = 0
    assert "rehearsal" not in drawn(lambda bar: None)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_bar_count_and_time_are_always_visible(drawn: Drawn, columns: int) -> None:
    step = StepEvent(1, 0, TERMS, 100_000, 0.5, 1.0)
    line = drawn(lambda bar: bar.on_step(step), columns)
    assert re.match(r"━{12}  0/36     -:--:-- task 1/3  100,", line)
    assert len(line) <= columns
    assert line.endswith("[red] 3.00" if columns == 200 else "…")


@pytest.mark.parametrize(("over", "shown"), [(0, "task 2/3"), (1, "task 3/3"), (2, "task 3/3")])
def test_after_a_task_the_next_is_named(drawn: Drawn, over: int, shown: str) -> None:
    evaluated = EvaluationEvent(12, over, [50.0], 1.0, 1.0, 1.0)
    assert shown in drawn(lambda bar: bar.on_evaluation(evaluated))


def test_a_name_is_shown_as_plain_text(
    capsys: pytest.CaptureFixture[str], trainer: Trainer
) -> None:
    Bar("er on folder:\x1b[2J").follow(trainer)
    assert capsys.readouterr().err == "er on folder:\\x1b[2J: 36 steps\n"


def test_names_in_brackets_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("onpro.cli.live.REFRESH_EVERY", 0.0)
    run = RunRequest(tmp_path / "my [best] run", ER)
    with Live([run]) as live:
        live.show(RunEvent("waiting"))
    assert "my [best] run" in capsys.readouterr().err
    with showing("listing images[/of birds]", 2) as advance:
        advance(2)
    assert "images[/of birds]" in capsys.readouterr().err
