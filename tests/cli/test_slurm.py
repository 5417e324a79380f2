"""`--on slurm` as a user meets it."""

import json
import sys
from pathlib import Path

import pytest

from onpro.experiments.executors import slurm
from onpro.runs import finished
from tests.cli.conftest import Command
from tests.tiny_runs import ER as CONFIG

SWEEP = '[[runs]]\nmethod = "er"\ndata = "tiny"\nmemory = 20\nlimit_per_class = 8\n'


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["sweep", "run"])
def test_commands_run_on_a_cluster(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setattr(slurm, "CLUSTER", "local")
    (tmp_path / "sweep.toml").write_text(SWEEP)
    small = ["er", "--data", "tiny", "--memory", "20", "--limit-per-class", "8", "--json"]
    asked = small if command == "run" else ["sweep.toml", "--format", "json"]
    answer = onpro(command, *asked, "--on", "slurm", "--checkpoint-every", "0")
    assert answer.status == 0, answer.err
    assert "1 of 1 done" in answer.err
    assert json.loads(answer.out)
    assert finished(CONFIG, tmp_path / "runs") is not None


@pytest.mark.parametrize("command", [["run", "er"], ["sweep", "sweep.toml"], ["table", "1"]])
def test_without_slurm_or_submitit_it_is_told(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    answer = onpro(*command, "--on", "slurm")
    assert answer.status == 2
    assert "onpro: there is no SLURM here (sbatch and srun are not found): start" in answer.err
    monkeypatch.setitem(sys.modules, "submitit", None)
    answer = onpro(*command, "--on", "slurm")
    assert answer.status == 2
    assert "submitit is not installed: pip install 'onpro[slurm]'" in answer.err


def test_runs_are_planned_where_there_is_no_slurm(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "submitit", None)
    for device in ("auto", "cuda"):
        asked = ["--on", "slurm", "--device", device, "--partition", "long", "--dry-run"]
        answer = onpro("sweep", "sweep.toml", *asked)
        assert answer.status == 0, answer.err
        assert "1 run: 1 missing" in answer.out


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--partition", "long"], "--partition is for --on slurm: add that, or leave it out."),
        (["--on", "slurm", "--gpus", "1"], "--gpus is for --on local"),
        (["--on", "slurm", "--at-once", "2"], "--at-once is for --on local or ray"),
        (["--on", "slurm", "--time", "0"], "--time takes at least 1 minute, not 0."),
        (["--on", "slurm", "--slurm", "=3"], "--slurm takes KEY=VALUE, such as account=lab"),
    ],
)
def test_options_that_cannot_work_are_refused(
    onpro: Command, options: list[str], sentence: str
) -> None:
    answer = onpro("run", "er", "--data", "tiny", *options)
    assert answer.status == 2
    assert sentence in answer.err
    assert answer.err.count("\n") == 1
