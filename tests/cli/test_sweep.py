"""`onpro sweep`: a grid of the user's own, whatever happens to it on the way."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onpro.experiments.plan import Place, configurations
from onpro.experiments.sweep import read_sweep
from onpro.runs import run
from tests.cli.conftest import Command

pytestmark = pytest.mark.usefixtures("one_thread")

DOCS = Path(__file__).parents[2] / "docs" / "experiments.md"

TWELVE = """
[common]
data = "tiny"
seeds = 3
limit_per_class = 8

[[runs]]
method = "er"
memory = [20, 40]
settings.learning_rate = [0.05, 0.1]
"""


def results(out: Path) -> dict[str, int]:
    """When each finished run was finished."""
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob("*/result.json")}


@pytest.mark.thorough
def test_a_sweep_that_is_killed_goes_on_where_it_was(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(TWELVE)
    configs = [
        config
        for request in read_sweep(tmp_path / "sweep.toml")
        for config in configurations(request, Place())
    ]
    assert len(configs) == 12
    for config in configs:
        run(config, tmp_path / "undisturbed")
    expected = onpro("sweep", "sweep.toml", "--out", "undisturbed", "--device", "cpu")
    assert "started" not in expected.err

    command = ["sweep", "sweep.toml", "--out", "killed", "--device", "cpu", "--workers", "2"]
    moment = random.SystemRandom()
    enough, more = moment.randint(1, 9), moment.uniform(0, 0.3)
    with subprocess.Popen(
        [sys.executable, "-m", "onpro", *command],
        cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1"}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        while len(results(tmp_path / "killed")) < enough and process.poll() is None:
            time.sleep(0.02)
        time.sleep(more)
        os.killpg(process.pid, signal.SIGKILL)
    told = f"killed {more:.3f} s after {enough} results"
    before = results(tmp_path / "killed")
    assert enough <= len(before) <= 12, told

    answer = onpro(*command)
    assert answer.status == 0, answer.err
    after = results(tmp_path / "killed")
    assert after.keys() == {config.folder for config in configs}, told
    assert {name: after[name] for name in before} == before, f"{told}: a finished run was repeated"
    # A run killed right after its result was written leaves its lock, which holds nobody up.
    left = {p.name for p in (tmp_path / "killed").iterdir() if p.suffix != ".lock"}
    assert left == after.keys(), told
    assert answer.out == expected.out, told
    assert onpro(*command).out == expected.out
    assert results(tmp_path / "killed") == after


def test_methods_are_compared(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(TWELVE)
    answer = onpro("sweep", "sweep.toml", "--device", "cpu")
    assert answer.status == 0, answer.err
    rows = [line for line in answer.out.splitlines() if "paired  3 pairs" in line]
    assert len(rows) == 2 * 2, "two memories, accuracy and forgetting"
    assert (
        "learning_rate"
        not in onpro(
            "sweep", "sweep.toml", "--device", "cpu", "--no-compare", "--format", "csv"
        ).out.partition("first,second")[2]
    )


def test_a_run_that_fails_is_named_and_the_others_go_on(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(
        '[common]\ndata = "tiny"\nlimit_per_class = 4\n[[runs]]\nmethod = "er"\n'
        '[[runs]]\nmethod = "onpro"\nsettings.projection = 4096'
    )
    answer = onpro("sweep", "sweep.toml", "--device", "cpu")
    assert answer.status == 1
    failed = r"^failed: onpro-tiny-m100-s0-\w+: .*wider than the encoder's 160"
    assert len(re.findall(failed, answer.err, re.MULTILINE)) == 1, "told once"
    assert answer.err.splitlines()[-1] == "1 run failed, see above."
    assert len(results(tmp_path / "runs")) == 1
    assert answer.out.startswith("tiny, M = 100, limit_per_class=4\n")
    assert any(line.startswith("er ") for line in answer.out.splitlines())

    again = onpro("sweep", "sweep.toml", "--device", "cpu")
    assert again.status == 1
    assert "2 runs: 1 done, 1 missing" in again.err


def test_the_example_of_the_documentation_runs(onpro: Command, tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), flags=re.DOTALL)
    (tmp_path / "sweep.toml").write_text(example)
    planned = onpro("sweep", "sweep.toml", "--dry-run", "--device", "cpu")
    assert planned.status == 0, planned.err
    assert re.search(r"\d+ runs: \d+ missing", planned.out)
    quick = re.sub(r"limit_per_class = \d+", "limit_per_class = 4", example)
    assert quick != example
    (tmp_path / "sweep.toml").write_text(re.sub(r"seeds = \d+", "seeds = 1", quick))
    answer = onpro("sweep", "sweep.toml", "--device", "cpu")
    assert answer.status == 0, answer.err


@pytest.mark.thorough
@pytest.mark.parametrize(
    "command",
    [
        ["sweep", "sweep.toml", "--no-compare"],
        ["run", "er", "--data", "tiny", "--limit-per-class", "4", "--seeds", "2"],
    ],
)
def test_workers_take_the_options_of_a_run(
    onpro: Command, tmp_path: Path, command: list[str]
) -> None:
    (tmp_path / "sweep.toml").write_text(
        '[[runs]]\nmethod = "er"\ndata = "tiny"\nlimit_per_class = 4\nseeds = 2\n'
    )
    options = ["--tensorboard", "--engine", "eager", "--model", "--workers", "1"]
    answer = onpro(*command, *options, "--device", "cpu")
    assert answer.status == 0, answer.err
    assert "2 of 2 done" in answer.err
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert (folder / "model.onpro").exists()
        assert len(list(folder.glob("events.out.tfevents*"))) == 1
        assert json.loads((folder / "config.json").read_text())["engine"] == "eager"
