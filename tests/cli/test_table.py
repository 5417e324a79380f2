"""`onpro table`: what it runs, what it leaves alone, what it prints."""

import csv
import io
import json
import multiprocessing
import re
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from onpro.cli import many, training
from onpro.cli.live import Live
from onpro.cli.options import ExecutionOptions
from onpro.experiments.executors import RunEvent, execute
from onpro.experiments.plan import Place, Plan, configurations, plan
from onpro.experiments.tables import paper_table
from onpro.methods import registry
from onpro.runs import run
from tests.cli.conftest import Command
from tests.tiny_runs import ER as TINY
from tests.tiny_runs import sealed

pytestmark = pytest.mark.usefixtures("one_thread")

SMOKE = [
    "table", "table1", "--data", "tiny", "--methods", "er", "--memory", "20",
    "--seeds", "2", "--limit-per-class", "8", "--device", "cpu", "--out", "out",
]  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(TINY, tmp_path_factory.mktemp("runs")).result


def times(folder: Path) -> dict[str, int]:
    return {str(p): p.stat().st_mtime_ns for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("data", "options", "runs"),
    [
        (("cifar10",), {}, 22),
        (("cifar10", "tinyimagenet"), {}, 4),
        (("cifar10",), {"at_once": 4}, 8),
        (("cifar10",), {"workers": "3"}, 3),
        (("cifar10",), {"gpus": 1}, 11),
    ],
)
def test_gpus_get_as_many_runs_as_they_have_room_for(
    monkeypatch: pytest.MonkeyPatch, data: tuple[str, ...], options: dict[str, Any], runs: int
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(training, "pick_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    large = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda gpu: large)
    sides = [training.image_side(name, None) for name in data]
    executor = training.make_executor(ExecutionOptions(**options), "auto", max(sides))
    assert executor.device() == "cuda"
    assert executor.slots() == runs


def test_the_list_names_every_table(onpro: Command) -> None:
    answer = onpro("table", "--list")
    assert answer.status == 0
    for name in ("table1", "table4", "tableA1", "tableA6"):
        assert any(line.split()[:1] == [name] for line in answer.out.splitlines())
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.parametrize("command", ["table", "sweep"])
def test_help_fits_80_columns(onpro: Command, command: str) -> None:
    answer = onpro(command, "--help")
    assert answer.status == 0
    assert max(map(len, answer.out.splitlines())) <= 80


def test_a_smoke_table_is_run_once(onpro: Command, tmp_path: Path) -> None:
    before = onpro(*SMOKE, "--dry-run")
    assert "2 runs: 2 missing" in before.out
    assert "unknown" in before.out
    assert not (tmp_path / "out").exists()

    first = onpro(*SMOKE)
    assert first.status == 0, first.err
    assert first.out.startswith("tiny, M = 20, limit_per_class=8\n")
    (row,) = [line.split() for line in first.out.splitlines() if line.startswith("er")]
    assert row[1] == "2"
    assert row[5:] == ["n", "too", "small"]
    assert "paper" not in first.out, "the paper does not have it"
    assert "2 of 2 done" in first.err
    results = list((tmp_path / "out").glob("er-tiny-m20-s?-*/result.json"))
    assert len(results) == 2

    moments = times(tmp_path / "out")
    second = onpro(*SMOKE)
    assert second.out == first.out
    assert "started" not in second.err
    assert "2 runs: 2 done" in second.err
    assert times(tmp_path / "out") == moments

    more = onpro(*SMOKE, "--seeds", "4", "--dry-run")
    assert "4 runs: 2 done, 2 missing" in more.out
    left = r"time left: (\d+ min )?\d+ s one run after another, about .* with 2 at once$"
    assert re.search(left, onpro(*SMOKE, "--seeds", "4", "--workers", "2", "--dry-run").out, re.M)

    results[0].write_text("{")
    planned = onpro(*SMOKE, "--dry-run")
    titles, _, row = (line.split() for line in planned.out.splitlines()[1:4])
    assert titles == ["data", "runs", "done", "damaged", "time", "left"]
    assert row == ["tiny", "2", "1", "1"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="without a GPU here")
@pytest.mark.parametrize(
    ("options", "precision"),
    [([], "fp32"), (["--at-once", "2"], "fp32"), (["--device", "cuda"], "bf16")],
)
def test_runs_on_a_ray_cluster_are_planned_on_a_machine_without_its_gpus(
    onpro: Command, monkeypatch: pytest.MonkeyPatch, options: list[str], precision: str
) -> None:
    planned: list[Plan] = []

    def spy(*given: Any) -> Plan:
        planned.append(plan(*given))
        return planned[-1]

    monkeypatch.setattr(many, "plan", spy)
    smoke = [word for word in SMOKE if word not in ("--device", "cpu")]
    answer = onpro(*smoke, "--on", "ray", *options, "--dry-run")
    assert answer.status == 0, answer.err
    assert "2 runs: 2 missing" in answer.out
    assert {run.config.precision for run in planned[0].runs()} == {precision}


def pretend(folder: Path, result: dict[str, Any], method: str, accuracies: list[float]) -> None:
    """Finished runs of a method on CIFAR-10 that ended so."""
    part = paper_table("table1").narrowed(data=["cifar10"], methods=[method], memory=[200])
    (request,) = part.setups(range(len(accuracies)))
    for config, accuracy in zip(configurations(request, Place()), accuracies, strict=True):
        (folder / config.folder).mkdir(parents=True)
        told = {"data": "cifar10", "method": method, "memory": 200, "seed": config.seed}
        told |= {"average_accuracy": accuracy, "identity": config.identity}
        (folder / config.folder / "result.json").write_text(sealed(result, **told))


CIFAR10 = ["table", "1", "--data", "cifar10", "--memory", "200", "--seeds", "3", "--device", "cpu"]


@pytest.fixture
def pretended(tmp_path: Path, result: dict[str, Any]) -> None:
    pretend(tmp_path / "runs", result, "er", [20.0, 21.0, 22.0])
    pretend(tmp_path / "runs", result, "onpro", [60.0, 61.0, 62.1])


@pytest.mark.usefixtures("pretended")
def test_the_table_stands_beside_the_papers(onpro: Command) -> None:
    answer = onpro(*CIFAR10, "--methods", "onpro,er")
    assert answer.status == 0, answer.err
    rows = [line.split() for line in answer.out.splitlines()]
    assert answer.out.splitlines()[0] == "cifar10, M = 200"
    shown = {row[0]: " ".join(row[1:]) for row in rows if row}
    assert shown["er"] == "3 21.0 ± 1.0 18.5 to 23.5 20.9 ± 0.9 +0.1"
    assert shown["onpro"] == "3 61.0 ± 1.1 58.4 to 63.6 65.5 ± 1.0 -4.5"
    assert max(map(len, answer.out.splitlines())) <= 80


@pytest.mark.usefixtures("pretended")
def test_every_format_says_the_same(onpro: Command) -> None:
    asked = [*CIFAR10, "--methods", "er"]
    (record,) = json.loads(onpro(*asked, "--format", "json").out)
    assert (record["method"], record["data"], record["memory"]) == ("er", "cifar10", 200)
    assert (record["n"], record["accuracy_mean"], record["paper_accuracy_mean"]) == (3, 21.0, 20.9)
    assert record["accuracy_ci95"] == pytest.approx(2.4841, abs=1e-4)
    (line,) = csv.DictReader(io.StringIO(onpro(*asked, "--format", "csv").out))
    assert {key: "" if record[key] is None else str(record[key]) for key in record} == line
    markdown = onpro(*asked, "--format", "markdown").out
    assert "| cifar10 | 200 | er | 3 | 21.0 ± 1.0 | 18.5 to 23.5 | 20.9 ± 0.9 | +0.1 |" in markdown
    latex = onpro(*asked, "--format", "latex").out
    assert r"ER & \textbf{21.0 $\pm$ 1.0} \\" in latex
    assert "\\toprule" in latex


def test_two_runs_are_too_few_for_an_interval(
    onpro: Command, tmp_path: Path, result: dict[str, Any]
) -> None:
    pretend(tmp_path / "runs", result, "er", [20.0, 22.0])
    asked = ["table", "1", "--data", "cifar10", "--memory", "200", "--methods", "er"]
    asked += ["--seeds", "2", "--device", "cpu"]
    rows = [line.split() for line in onpro(*asked).out.splitlines()]
    assert ["er", "2", "21.0", "±", "1.4", "n", "too", "small", "20.9", "±", "0.9", "+0.1"] in rows
    (record,) = json.loads(onpro(*asked, "--format", "json").out)
    assert (record["n"], record["accuracy_ci95"]) == (2, None)


@pytest.mark.usefixtures("pretended")
def test_a_constant_difference_is_named(
    onpro: Command, tmp_path: Path, result: dict[str, Any]
) -> None:
    pretend(tmp_path / "runs", result, "mir", [20.3, 21.3, 22.3])
    answer = onpro(*CIFAR10, "--methods", "mir,er", "--compare")
    (row,) = [line.split() for line in answer.out.splitlines() if "constant" in line]
    assert row == ["mir", "er", "paired", "3", "pairs", "+0.30", "0.25", "constant", "difference"]


@pytest.mark.usefixtures("pretended")
def test_methods_are_compared_over_common_seeds(onpro: Command) -> None:
    answer = onpro(*CIFAR10, "--methods", "onpro,er", "--compare")
    (row,) = [line.split() for line in answer.out.splitlines() if "onpro  er" in line]
    told = "onpro er paired 3 pairs +40.03 +39.89 to +40.18 6.9e-07 6.9e-07 0.25"
    assert row == told.split()


@pytest.mark.usefixtures("pretended")
def test_results_and_comparisons_are_one_document_for_programs(onpro: Command) -> None:
    asked = [*CIFAR10, "--methods", "onpro,er", "--compare", "--format"]
    both = json.loads(onpro(*asked, "json").out)
    assert [record["method"] for record in both["results"]] == ["onpro", "er"]
    (compared,) = both["comparisons"]
    assert (compared["first"], compared["second"]) == ("onpro", "er")
    assert (compared["test"], compared["n_first"], compared["n_second"]) == ("paired", 3, 3)
    assert compared["p"] == compared["p_holm"] < 1e-6
    assert compared["note"] is None
    answer = onpro(*asked, "csv")
    assert [line["method"] for line in csv.DictReader(io.StringIO(answer.out))] == ["onpro", "er"]
    assert "not in csv: the comparison" in answer.err


@pytest.mark.usefixtures("pretended")
def test_a_plan_for_programs_has_seconds(onpro: Command) -> None:
    asked = [*CIFAR10, "--methods", "er", "--dry-run"]
    (record,) = json.loads(onpro(*asked, "--format", "json").out)
    assert (record["method"], record["done"], record["seconds_left"]) == ("er", 3, 0)
    (record,) = json.loads(onpro(*asked, "--seeds", "4", "--format", "json").out)
    assert (record["missing"], record["left"], record["seconds_left"]) == (1, "unknown", None)
    assert "time left: unknown (--calibrate estimates it)" in onpro(*asked, "--seeds", "4").out


def test_what_does_not_exist_is_named_and_the_rest_is_run(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {name: cls for name, cls in registry._METHODS.items() if name != "ocm"}
    monkeypatch.setattr(registry, "_METHODS", known)
    answer = onpro(*SMOKE, "--methods", "ocm,er", "--data", "tiny,elsewhere", "--seeds", "1")
    assert answer.status == 0
    lines = [line for line in answer.err.splitlines() if line.startswith("left out: ")]
    assert any("ocm, tiny, M = 20" in line and "no method 'ocm'" in line for line in lines)
    assert any("er, elsewhere, M = 20: there is no data set" in line for line in lines)
    assert "1 of 1 done" in answer.err


def test_without_imagenet_its_table_says_what_to_give(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    few = ["--methods", "er", "--seeds", "1", "--device", "cpu", "--data-dir", "empty"]
    answer = onpro("table", "tableA2", *few)
    assert answer.status == 2
    assert "nothing of tableA2 can be run: er, imagenet100, M = 1000" in answer.err
    assert "give the folder that contains its folders train and val with --data-dir" in answer.err


def test_a_whole_table_can_be_planned(onpro: Command) -> None:
    for name in ("table1", "tableA1", "tableA2", "tableA4"):
        answer = onpro("table", name, "--dry-run", "--device", "cpu")
        assert answer.status == 0
        data = {data for data, _ in paper_table(name).places}
        lines = [line.split()[0] for line in answer.out.splitlines() if line.strip()]
        assert all(lines.count(name) <= 1 for name in data), "a line for each data set"
        assert data & set(lines), "at least one can be planned"
        assert len(lines) <= 4 + len(data)
        assert answer.err.count("Traceback") == 0


def test_a_data_set_that_cannot_be_had_is_named(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    asked = [*SMOKE, "--data", "cifar10", "--seeds", "1", "--data-dir", "nowhere"]
    answer = onpro(*asked)
    assert answer.status == 2
    assert (
        "nothing of table1 can be run: er, limit_per_class=8, cifar10, M = 20: the data folder"
        in answer.err
    )
    assert len(answer.err.splitlines()) == 1


MISTAKES: dict[str, tuple[list[str], str]] = {
    "no table": (["table"], "name a table: table1, "),
    "unknown table": (["table", "table9"], "no table 'table9'; did you mean"),
    "unknown method": ([*SMOKE, "--methods", "onproo"], "did you mean 'onpro'?"),
    "unknown data set": ([*SMOKE, "--data", "nowhere"], "nothing of table1 can be run: er, "),
    "memory in words": (
        [*SMOKE, "--memory", "big"],
        "--memory takes comma-separated whole numbers",
    ),
    "memory of no column": (["table", "1", "--memory", "7"], "no memory of 7 but 100, 200, 500"),
    "no seeds": ([*SMOKE, "--seeds", "0"], "seeds must be from 1 to 10000, not 0"),
    "negative seed": ([*SMOKE, "--seed", "-1"], "seed must be at least 0"),
    "workers in words": ([*SMOKE, "--workers", "many"], "--workers takes auto or a number"),
    "no workers": ([*SMOKE, "--workers", "0"], "--workers takes auto or a number"),
    "too many on a GPU": ([*SMOKE, "--at-once", "33"], "--at-once takes 1 to 32, not 33"),
    "no thread": ([*SMOKE, "--threads", "0"], "at least 1 thread, not 0"),
    "an engine of GPUs": ([*SMOKE, "--engine", "graph"], "--engine graph needs a GPU"),
    "calibration of a real run": ([*SMOKE, "--calibrate"], "--calibrate is for --dry-run"),
    "GPUs of Ray": ([*SMOKE, "--on", "ray", "--gpus", "1"], "--gpus is for --on local"),
    "GPUs of a CPU": ([*SMOKE, "--device", "cpu", "--gpus", "1"], "runs have no GPU here"),
    "cluster without Ray": ([*SMOKE, "--ray-address", "auto"], "--ray-address is for --on ray"),
    "a file for a folder": ([*SMOKE, "--out", "file"], "cannot write in file"),
    "unknown format": (
        [*SMOKE, "--format", "word"],
        "--format takes text, markdown, latex, csv or json, not 'word'",
    ),
    "no sweep": (["sweep"], "name a TOML file"),
    "missing sweep": (["sweep", "nothing.toml"], "there is no file nothing.toml"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(onpro: Command, tmp_path: Path, mistake: str) -> None:
    (tmp_path / "file").touch()
    arguments, sentence = MISTAKES[mistake]
    answer = onpro(*arguments)
    assert answer.status == 2
    assert len(answer.err.splitlines()) == 1, answer.err
    assert sentence in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "something was left behind"


def test_without_ray_it_is_told_how_to_get_it(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    answer = onpro(*SMOKE, "--on", "ray")
    assert answer.status == 2
    assert "Ray is not installed: pip install 'onpro[ray]'" in answer.err


def test_a_calibration_estimates_what_was_never_run(onpro: Command, tmp_path: Path) -> None:
    answer = onpro(*SMOKE, "--dry-run", "--calibrate")
    assert answer.status == 0
    assert "unknown" not in answer.out
    assert not (tmp_path / "out").exists()


def test_a_run_that_cannot_be_timed_stops_no_other(onpro: Command, tmp_path: Path) -> None:
    grid = 'method = ["er", "agem"]\ndata = "tiny"\nmemory = 20\nevaluations = [0, 1000]'
    (tmp_path / "sweep.toml").write_text(f"[[runs]]\n{grid}\nseeds = 2")
    answer = onpro("sweep", "sweep.toml", "--dry-run", "--calibrate", "--device", "cpu")
    assert answer.status == 0
    told = [line for line in answer.err.splitlines() if line.startswith("not timed: ")]
    assert len(told) == 2, "once for each kind of run"
    assert "1000 evaluations are too many" in told[0]
    assert "time left for 4 of 8 runs: " in answer.out
    assert "--calibrate" not in answer.out


def test_on_a_terminal_one_table_shows_all_runs(
    onpro: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("onpro.cli.live.REFRESH_EVERY", 0.0)
    answer = onpro(*SMOKE)
    assert answer.status == 0
    for words in ("time left", "running", "2 of 2 done", "3/3", "finished: er-tiny-m20-s1"):
        assert words in answer.err
    assert re.search(r"2 of 2 done, \d+ s", answer.err), "how long it has taken"
    assert "\x1b[" not in answer.out


def test_sigterm_keeps_what_was_begun_and_the_same_command_goes_on(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = ["table", "table1", "--data", "tiny", "--methods", "er", "--memory", "20"]
    slow += ["--seeds", "3", "--device", "cpu", "--out", "out"]

    class Terminated(Live):
        """Notices the beginning of a run just when the signal arrives."""

        def show(self, event: RunEvent) -> None:
            super().show(event)
            if any(tmp_path.glob("out/*/events.jsonl")):
                signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr("onpro.cli.training.Live", Terminated)
        patch.setitem(execute.__globals__, "LOOK_EVERY", 0.01)
        answer = onpro(*slow, "--workers", "2")
    assert answer.status == 128 + signal.SIGTERM
    assert not multiprocessing.active_children()
    assert "what is done so far is kept, and the same command resumes it." in answer.err
    assert "Traceback" not in answer.err
    begun = {p.parent.name for p in tmp_path.glob("out/*/checkpoint")}
    assert begun
    assert not list(tmp_path.glob("out/**/*.part"))
    before = times(tmp_path / "out")

    answer = onpro(*slow)
    assert answer.status == 0, answer.err
    assert "unfinished" in answer.err
    assert "resumes from step" in answer.err
    done = list(tmp_path.glob("out/*/result.json"))
    assert len(done) == 3
    finished_before = {path for path in before if path.endswith("result.json")}
    assert all(times(tmp_path / "out")[path] == before[path] for path in finished_before)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.parent.name for p in done}
