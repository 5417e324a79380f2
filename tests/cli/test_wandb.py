"""`onpro run --wandb`: what Weights & Biases hears of a run, and that it never disturbs one."""

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from onpro.cli.live import Bar
from onpro.experiments.executors import requests
from onpro.experiments.executors.worker import work
from onpro.training import StepEvent
from tests.cli.conftest import Command
from tests.tiny_runs import ER as CONFIG

ER = ["run", "er", "--data", "tiny", "--limit-per-class", "8", "--device", "cpu"]


class FakeRun:
    """One part of a run, from `init` to `finish`."""

    url = "https://example.org/onpro/runs/1"

    def __init__(self, service: "FakeWandb", options: dict[str, Any]) -> None:
        self.service, self.options = service, options
        self.offline = options["mode"] == "offline"
        self.dir = f"wandb/offline-run-{options['id']}/files"
        self.step = 0 if self.offline else service.known.get(options["id"], -1) + 1
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.exit_code: int | None = None

    def log(self, values: dict[str, float], step: int) -> None:
        self.service.may_fail("log")
        assert step >= self.step, "W&B drops what belongs to earlier steps, and complains"
        self.step = step
        self.logged.append((step, values))
        self.service.known[self.options["id"]] = step

    def finish(self, exit_code: int) -> None:
        self.service.may_fail("finish")
        self.exit_code = exit_code


class FakeWandb(ModuleType):
    """As much of the package as is used."""

    class Error(Exception):
        """What the package raises."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.runs: list[FakeRun] = []
        self.known: dict[str, int] = {}
        self.logged_in = True
        self.failing: dict[str, Exception] = {}

    Settings = dict

    def may_fail(self, name: str) -> None:
        if name in self.failing:
            raise self.failing[name]

    def setup(self, settings: dict[str, Any]) -> None:
        assert settings["silent"]

    def login(self, *, prompt: bool, verify: bool) -> bool:
        assert not prompt, "a question would wait for an answer"
        assert not verify, "a server would be waited for"
        return self.logged_in

    def init(self, **options: Any) -> FakeRun:
        assert 0 < options["settings"]["init_timeout"] <= 60
        assert 0 < options["settings"]["finish_timeout"] <= 60
        self.may_fail("init")
        self.may_fail(options["mode"])
        self.runs.append(FakeRun(self, options))
        return self.runs[-1]


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def events(folder: Path) -> list[tuple[int, dict[str, float]]]:
    """What the run's own log holds, as W&B is to hear it."""
    heard = []
    for line in (folder / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["event"] == "step":
            values = {f"loss/{name}": value for name, value in event["terms"].items()}
        else:
            values = {f"accuracy/task {k}": value for k, value in enumerate(event["accuracy"])}
            values["accuracy/average"] = sum(event["accuracy"]) / len(event["accuracy"])
        heard.append((event["step"], values))
    return heard


def interrupt_at_step_4(self: Bar, step: StepEvent) -> None:
    if step.step == 4:
        signal.raise_signal(signal.SIGTERM)


def test_it_hears_what_the_runs_log_holds(
    onpro: Command,
    wandb: FakeWandb,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    answers = [onpro(*ER, "--seed", seed, "--wandb", "--json") for seed in "01"]
    results = [json.loads(answer.out.splitlines()[-1]) for answer in answers]
    assert len(wandb.runs) == 2
    for run, result in zip(wandb.runs, results, strict=True):
        folder = tmp_path / result["run"]
        assert run.logged == events(folder)
        assert run.logged[-1][1]["accuracy/average"] == result["average_accuracy"]
        assert run.exit_code == 0
        assert (run.options["project"], run.options["name"]) == ("mine", folder.name)
        assert run.options["config"] == json.loads((folder / "config.json").read_text())
    assert wandb.runs[0].options["id"] != wandb.runs[1].options["id"]
    assert caplog.text.count(FakeRun.url) == 2


def test_it_hears_of_a_run_in_a_worker(wandb: FakeWandb, tmp_path: Path) -> None:
    (request,) = requests([CONFIG], tmp_path)
    assert work(replace(request, wandb=True)).kind == "finished"
    (run,) = wandb.runs
    assert (run.logged, run.exit_code) == (events(request.folder), 0)


def test_without_the_option_it_hears_nothing(onpro: Command, wandb: FakeWandb) -> None:
    assert onpro(*ER).status == 0
    assert not wandb.runs


@pytest.mark.parametrize("online", [True, False])
def test_a_run_that_goes_on_goes_on_there_too(
    onpro: Command, wandb: FakeWandb, tmp_path: Path, online: bool
) -> None:
    wandb.logged_in = online
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bar, "on_step", interrupt_at_step_4)
        assert onpro(*ER, "--wandb").status == 143
    (folder,) = (tmp_path / "runs").iterdir()
    assert onpro("resume", str(folder)).status == 0
    first, second = wandb.runs
    assert (first.exit_code, second.exit_code) == (1, 0)
    assert first.options["id"] == second.options["id"]
    assert second.options["resume"] == "allow"
    whole = events(folder)
    assert first.logged == whole[: len(first.logged)]
    assert first.logged + second.logged == whole, "nothing twice, nothing left out"


def test_a_repetition_is_another_run(onpro: Command, wandb: FakeWandb, tmp_path: Path) -> None:
    for options in (["--wandb"], ["--wandb", "--fresh"], ["--fresh"]):
        assert onpro(*ER, *options).status == 0
    first, second = wandb.runs
    assert first.options["id"] != second.options["id"]
    assert [path.suffix for path in (tmp_path / "runs").iterdir()] == [""]


@pytest.mark.parametrize("why", ["no login", "WANDB_MODE", "no answer"])
def test_offline_it_writes_files_and_says_how_to_upload_them(
    onpro: Command,
    wandb: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    why: str,
) -> None:
    if why == "no login":
        wandb.logged_in = False
    elif why == "WANDB_MODE":
        monkeypatch.setenv("WANDB_MODE", "offline")
    else:
        wandb.failing["online"] = wandb.Error("timed out after 30 s")
    answer = onpro(*ER, "--wandb")
    assert answer.status == 0, answer.err
    (run,) = wandb.runs
    assert run.options["mode"] == "offline"
    assert f"upload with wandb sync {Path(run.dir).parent}" in caplog.text


@pytest.mark.parametrize("what", ["init", "log", "finish"])
def test_what_fails_there_is_told_once_and_disturbs_nothing(
    onpro: Command, wandb: FakeWandb, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    wandb.failing[what] = RuntimeError("the disk is full\nand more")
    answer = onpro(*ER, "--wandb")
    assert answer.status == 0
    assert caplog.text.count("to Weights & Biases stopped") == 1
    assert "(the disk is full)" in caplog.text
    assert "Traceback" not in answer.err + caplog.text


def test_where_it_is_missing_it_is_told_how_to_get_it(
    onpro: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    answer = onpro(*ER, "--wandb")
    assert answer.status == 2
    last = answer.err.splitlines()[-1]
    assert last.startswith("onpro: Weights & Biases is not installed: pip install 'onpro[wandb]'")
    assert not list(tmp_path.glob("runs/*"))


def test_where_it_is_missing_a_run_goes_on_without_it(
    onpro: Command,
    wandb: FakeWandb,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bar, "on_step", interrupt_at_step_4)
        assert onpro(*ER, "--wandb").status == 143
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert onpro(*ER).status == 0
    assert "resumes without Weights & Biases, which is not installed" in caplog.text
