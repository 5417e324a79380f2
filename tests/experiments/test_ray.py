"""Runs on a Ray cluster of two machines, one of which goes away."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onpro.cli import main
from onpro.errors import UserError
from onpro.experiments.executors import RunEvent, execute, requests
from onpro.experiments.executors.ray import QUIET, Ray
from onpro.runs import RunConfig, finished, run
from onpro.training.checkpoint import Checkpoints
from tests.tiny_runs import ER as CONFIG
from tests.tiny_runs import lasting

os.environ.update(QUIET)  # Ray reads it when it is imported
ray = pytest.importorskip("ray", reason="Ray is an extra: pip install 'onpro[ray]'")
cluster_utils = pytest.importorskip("ray.cluster_utils")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Ray's own: sockets and files it leaves open
]

SLOW = replace(CONFIG, limit_per_class=None, batch_size=1, tasks=6)
"""Some seconds long, with a checkpoint after each sixth of it."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two machines of one core, as far as Ray can tell."""
    made = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    yield made
    made.shutdown()


def seeds(config: RunConfig, number: int) -> list[RunConfig]:
    return [replace(config, seed=seed) for seed in range(number)]


def plain(config: RunConfig, out: Path) -> dict[str, Any]:
    done = finished(config, out)
    assert done is not None
    return lasting(done.result) | {"hardware": None}


def has_checkpoint(config: RunConfig, out: Path) -> bool:
    return bool(Checkpoints(out / config.folder / "checkpoint").files())


def test_a_machine_that_goes_away_loses_no_run(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    configs = seeds(SLOW, 4)
    events: list[RunEvent] = []
    with closing(Ray(cluster.address)) as executor:
        assert executor.slots() == 2
        assert executor.device() == "cpu"
        for event in execute(requests(configs, tmp_path / "a", checkpoint_every=0), executor):
            events.append(event)
            saved = [config for config in configs if has_checkpoint(config, tmp_path / "a")]
            if node and len(saved) == 2:  # one of them is on that machine
                cluster.remove_node(node, allow_graceful=False)
                node = None
    assert node is None
    kinds = [event.kind for event in events if event.request]
    assert kinds.count("finished") == 4
    assert kinds.count("again") == 1
    assert "failed" not in kinds
    (again,) = [event for event in events if event.kind == "again"]
    assert "its worker was lost" in again.reason
    said = [event.result.output for event in events if event.request == again.request]
    assert any("resumes from step" in line for line in said)
    for config in configs:
        run(config, tmp_path / "b")
        assert plain(config, tmp_path / "a") == plain(config, tmp_path / "b")
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {config.folder for config in configs}


def test_stopping_saves_what_was_trained(cluster: Any, tmp_path: Path) -> None:
    log = tmp_path / SLOW.folder / "events.jsonl"
    with closing(Ray(cluster.address)) as executor:
        with closing(execute(requests([SLOW], tmp_path), executor)) as events:
            for _ in events:
                if log.exists():
                    break
        assert finished(SLOW, tmp_path) is None
        assert has_checkpoint(SLOW, tmp_path)
        assert [e.kind for e in execute(requests([SLOW], tmp_path), executor) if e.request] == [
            "started",
            "finished",
        ]


def test_a_mistake_is_told_and_does_not_stop_the_others(cluster: Any, tmp_path: Path) -> None:
    broken = replace(CONFIG, settings=replace(CONFIG.settings, encoder="resnet18-imagenet"))
    with closing(Ray(cluster.address, workers=1)) as executor:
        assert executor.slots() == 1
        events = list(execute(requests([broken, CONFIG], tmp_path), executor))
    (failed,) = [event for event in events if event.kind == "failed"]
    assert "are too small for the encoder" in failed.reason
    assert finished(CONFIG, tmp_path) is not None


def test_a_sweep_runs_on_a_cluster(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(
        '[[runs]]\nmethod = "er"\ndata = "tiny"\nmemory = 20\nseeds = 2\nlimit_per_class = 8'
    )
    out = str(tmp_path / "runs")
    command = ["sweep", str(file), "--out", out, "--on", "ray", "--ray-address", cluster.address]
    assert main(command) == 0
    assert "2 of 2 done" in capsys.readouterr().err
    for config in seeds(CONFIG, 2):
        assert finished(config, tmp_path / "runs") is not None
    assert main([*command[:4], "--device", "cpu"]) == 0
    assert "2 runs: 2 done" in capsys.readouterr().err, "it is the same runs on this machine"


def test_what_the_cluster_does_not_have_is_told(cluster: Any) -> None:
    with pytest.raises(UserError, match="no machine of the Ray cluster has"):
        Ray(cluster.address, cpus=64)
    with pytest.raises(UserError, match=r"0\.5 GPUs, which no machine"):
        Ray(cluster.address, at_once=2, device="cuda")


def test_a_run_is_not_spread_over_two_machines(cluster: Any) -> None:
    node = cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    try:
        with pytest.raises(UserError, match="a run takes 2 cores"):
            Ray(cluster.address, cpus=2)
    finally:
        cluster.remove_node(node)


def test_a_cluster_that_is_not_there_is_told() -> None:
    with pytest.raises(UserError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        Ray("127.0.0.1:1")


def test_a_cluster_that_cannot_be_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise RuntimeError("there is no room.")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(UserError, match=r"can be started here: there is no room\."):
        Ray()


def test_without_an_address_a_cluster_is_started_and_stopped(tmp_path: Path) -> None:
    with closing(Ray()) as executor:
        assert executor.slots() >= 1
        events = list(execute(requests([CONFIG], tmp_path), executor))
    assert [event.kind for event in events if event.request] == ["started", "finished"]
    assert not ray.is_initialized()
