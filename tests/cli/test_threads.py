"""Number of threads: the same wherever a run is trained, unless somebody says otherwise."""

import json
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from onpro.experiments.executors import requests
from onpro.experiments.executors.worker import work
from onpro.runs import Interrupted, finished, run
from onpro.runs.threads import cpu_threads, threads_of
from tests.cli.conftest import Command
from tests.tiny_runs import ER as CONFIG
from tests.tiny_runs import lasting

RUN = [
    "run", "er", "--data", "tiny", "--memory", "20", "--limit-per-class", "8", "--device", "cpu",
]  # fmt: skip
SWEEP = """
[[runs]]
method = "er"
data = "tiny"
memory = 20
limit_per_class = 8
"""


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    """Torch takes as many as there are cores."""
    with cpu_threads(2):
        yield
        assert torch.get_num_threads() == 2, "a command leaves them as they were"


def result_in(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return value


def interrupt(out: Path) -> None:
    steps = count()
    with pytest.raises(Interrupted, match="is saved"):
        run(CONFIG, out, stop=lambda: signal.SIGTERM if next(steps) > 2 else None)


def test_a_run_and_a_worker_of_a_sweep_compute_the_same(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    assert onpro(*RUN, "--out", "alone").status == 0
    assert onpro("sweep", "sweep.toml", "--device", "cpu", "--out", "swept").status == 0
    alone, swept = (result_in(tmp_path / out / CONFIG.folder) for out in ("alone", "swept"))
    assert lasting(alone) == lasting(swept)
    assert alone["hardware"]["threads"] == 1


@pytest.mark.parametrize(
    "command", [[*RUN, "--threads", "2"], ["sweep", "sweep.toml", "--threads", "2"]]
)
def test_more_threads_can_be_asked_for(onpro: Command, tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    assert onpro(*command, "--device", "cpu").status == 0
    assert result_in(tmp_path / "runs" / CONFIG.folder)["hardware"]["threads"] == 2


def test_a_run_goes_on_with_the_threads_it_began_with(
    onpro: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    interrupt(tmp_path / "runs")
    interrupt(tmp_path / "swept")
    folder = tmp_path / "runs" / CONFIG.folder
    assert threads_of(folder) == 2
    assert onpro("resume", str(folder)).status == 0
    assert work(*requests([CONFIG], tmp_path / "swept")).kind == "finished"
    assert "changed since the run began" not in caplog.text
    straight = lasting(run(CONFIG, tmp_path / "straight").result)
    for out in ("runs", "swept"):
        done = finished(CONFIG, tmp_path / out)
        assert done is not None
        assert lasting(done.result) == straight


def test_another_number_of_threads_on_the_way_is_told(
    onpro: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    interrupt(tmp_path)
    assert onpro("resume", str(tmp_path / CONFIG.folder), "--threads", "1").status == 0
    assert "changed since the run began: threads 2 → 1" in caplog.text


def test_results_with_different_numbers_of_threads_are_told(onpro: Command, tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP + "seeds = 2\n")
    assert onpro(*RUN).status == 0
    assert onpro(*RUN, "--seed", "1", "--threads", "2").status == 0
    unequal = "computed with 1 and 2 threads, which changes the last digits."
    assert f"these runs {unequal}" in onpro(*RUN, "--seeds", "2").out
    told = onpro("sweep", "sweep.toml", "--device", "cpu").err
    assert f"er, limit_per_class=8, tiny, M = 20: its runs {unequal}" in told


@pytest.mark.parametrize("command", [RUN, ["resume", "x"], ["bench", "er", "--like", "tiny"]])
def test_no_thread_is_a_mistake(onpro: Command, command: list[str]) -> None:
    answer = onpro(*command, "--threads", "0")
    assert (answer.status, answer.err) == (2, "onpro: a run takes at least 1 thread, not 0.\n")


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"hardware": 3}', '{"hardware": {"threads": "2"}}', '{"hardware": {}}']
)
def test_a_damaged_note_on_threads_tells_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.json").write_text(content)
    assert threads_of(tmp_path) is None
    assert threads_of(tmp_path / "nowhere") is None
