"""What a run measures while it trains, and the networks it keeps after each task."""

import json
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.methods import methods, settings_for
from onpro.runs import Interrupted, RunConfig, prepare, read_config, run_in
from onpro.runs.folder import RunFolder
from onpro.runs.model import load_network, save_network
from onpro.runs.probes import PrototypeProbe
from onpro.runs.schema import fault
from onpro.training.statefile import load_state
from onpro.training.stepper import equal
from tests.tiny_runs import ER, lasting, sealed

OBSERVED = replace(ER, task_networks=True, probe="prototypes", probe_every=1, model="network")
NO_MEMORY = "pass"
EVERYDAY = {"er", "ocm", "onpro", "scr", "pass"}


def every_method(without: str = "") -> list[Any]:
    names = {*methods(), "er-kd", "er-rot"} - {without}
    return [
        pytest.param(name, marks=[] if name in EVERYDAY else pytest.mark.thorough)
        for name in sorted(names)
    ]


def of(name: str, config: RunConfig = OBSERVED) -> RunConfig:
    return replace(config, method=name, settings=settings_for(name, "tiny"))


@pytest.mark.parametrize("name", every_method(NO_MEMORY))
def test_observing_a_run_does_not_change_it(tmp_path: Path, name: str) -> None:
    config = replace(ER, model="network")
    plain, observed = prepare(of(name, config)), prepare(of(name))
    without = run_in(tmp_path / "plain", of(name, config), trainer=plain)
    done = run_in(tmp_path / "observed", of(name), trainer=observed)
    measured = done.result.pop("prototypes")
    assert lasting(done.result) == lasting(without.result)
    assert equal(observed.stepper.state_dict(), plain.stepper.state_dict())
    assert measured["step"] == [1, 2, 3, 4, 5, 6]
    assert measured["task"] == [0, 0, 1, 1, 2, 2]
    assert measured["old"][:2] == [None, None]
    assert all(-1 <= cosine <= 1.0001 for cosine in measured["old"][2:])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["er", "dvc", "ocm", "onpro", "cope"])
def test_observing_a_run_in_a_cuda_graph_does_not_change_it(tmp_path: Path, name: str) -> None:
    place: dict[str, Any] = {"device": "cuda", "engine": "graph", "deterministic": True}
    place |= {"limit_per_class": None}
    plain, observed = (replace(of(name, config), **place) for config in (ER, OBSERVED))
    without, done = run_in(tmp_path / "plain", plain), run_in(tmp_path / "observed", observed)
    assert done.result.pop("prototypes")["step"]
    assert lasting(done.result) == lasting(without.result)


def test_an_interrupted_run_measures_and_keeps_the_same(tmp_path: Path) -> None:
    whole = run_in(tmp_path / "whole", OBSERVED)
    folder, trainer = tmp_path / "parts", prepare(OBSERVED)
    with pytest.raises(Interrupted):
        run_in(
            folder,
            OBSERVED,
            trainer=trainer,
            stop=lambda: signal.SIGTERM if trainer.stream.position >= 3 else None,
        )
    assert read_config(folder) == OBSERVED
    done = run_in(folder, read_config(folder))
    assert lasting(done.result) == lasting(whole.result)
    for name in ("network-1.onpro", "network-2.onpro"):
        ours, its = (load_state(place / name, kind="network") for place in (folder, whole.folder))
        assert equal(ours, its)


class Fixed:
    """Makes the encoder of a method return the rows of a table."""

    def __init__(self, method: Any, table: torch.Tensor) -> None:
        self._table = table
        method.network.encoder.forward = self._look_up

    def _look_up(self, images: torch.Tensor) -> torch.Tensor:
        return self._table[: len(images)]


def test_the_similarity_is_that_of_the_definition() -> None:
    method = prepare(of("er", ER)).method
    shape = method.context.image_shape
    method.memory = Memory(5, shape, device="cpu")
    labels = torch.tensor([0, 0, 1, 1, 1])
    method.memory.write(torch.arange(5), torch.zeros((5, *shape), dtype=torch.uint8), labels)
    method.memory.advance(5)
    method.progress.seen_before_task = {0}
    generator = torch.Generator().manual_seed(0)
    table = torch.rand(5, method.network.encoder.out_features, generator=generator)
    Fixed(method, table)
    probe = PrototypeProbe(every=1, seed=0, replay_batch=3, space="features")
    for step in range(1, 9):
        probe.measure(method, step, task=1)

    def prototype(rows: list[int]) -> torch.Tensor:
        units = [table[row].double() / table[row].double().norm() for row in rows]
        return torch.stack(units).mean(dim=0)

    def cosine(rows: list[int], everything: list[int]) -> float:
        a, b = prototype(rows), prototype(everything)
        return round(float(a @ b / a.norm() / b.norm()), 4)

    possible_old = {cosine([0], [0, 1]), cosine([1], [0, 1]), 1.0, None}
    possible_new = {
        cosine(rows, [2, 3, 4]) for rows in ([2], [3], [4], [2, 3], [2, 4], [3, 4], [2, 3, 4])
    }
    measured = probe.state_dict()
    assert set(measured["old"]) <= possible_old
    assert set(measured["new"]) <= possible_new
    assert len(set(measured["new"])) > 2, "each step has another replay batch"


def test_a_run_is_measured_at_the_steps_asked_for(tmp_path: Path) -> None:
    steps = run_in(tmp_path, replace(OBSERVED, probe_every=2)).result["prototypes"]["step"]
    assert len(steps) > 1
    assert steps == [2 * count for count in range(1, len(steps) + 1)]


def test_methods_with_a_projection_are_measured_by_it(tmp_path: Path) -> None:
    spaces = {
        name: run_in(tmp_path / name, of(name)).result["prototypes"]["space"]
        for name in ("er", "onpro", "scr")
    }
    assert spaces == {"er": "features", "onpro": "projection", "scr": "projection"}


def test_a_method_without_a_memory_cannot_be_probed() -> None:
    with pytest.raises(UserError, match="pass keeps no images"):
        prepare(of("pass"))
    with pytest.raises(UserError, match="every 1 or more steps"):
        replace(OBSERVED, probe_every=0)


@pytest.mark.parametrize("name", [*every_method(), "er-mkd", "er-ccldc", "er-gwm"])
def test_a_kept_network_predicts_as_the_method_did(tmp_path: Path, name: str) -> None:
    trainer = prepare(of(name, ER))
    for _ in trainer.steps():
        if len(trainer.accuracy) == 2:
            break
    save_network(tmp_path / "network", trainer.method)
    loaded = prepare(of(name, ER)).method
    load_network(tmp_path / "network", loaded)
    images = trainer.stream.test(0).images
    assert torch.equal(loaded.scores(images), trainer.method.scores(images))


def test_the_network_after_each_task_but_the_last_is_kept(tmp_path: Path) -> None:
    done = run_in(tmp_path / "run", OBSERVED)
    kept = sorted(path.name for path in done.folder.glob("*.onpro"))
    assert kept == ["model.onpro", "network-1.onpro", "network-2.onpro"]
    assert RunFolder(done.folder).network(2).name == "network-2.onpro"
    run_in(done.folder, ER, fresh=True)
    assert not list(done.folder.glob("*.onpro")), "those of a run that is no more"
    described = json.loads((done.folder / "config.json").read_text())
    assert not {"model", "task_networks", "probe", "probe_every"} & described.keys()


def test_a_network_of_another_run_is_refused(tmp_path: Path) -> None:
    save_network(tmp_path / "network", prepare(of("er", ER)).method)
    other = replace(ER, settings=replace(ER.settings, encoder="resnet18"))
    with pytest.raises(UserError, match="does not fit its run"):
        load_network(tmp_path / "network", prepare(other).method)


def test_the_content_of_the_memory_and_the_accuracy_of_classes_are_in_the_result(
    tmp_path: Path,
) -> None:
    config = replace(ER, evaluations=6)
    trainer = prepare(config)
    result = run_in(tmp_path / "run", config, trainer=trainer).result
    points = len(result["curve"])
    assert len(result["memory_content"]) == len(result["class_accuracy"]) == points == 6
    for content, accuracy in zip(result["memory_content"], result["class_accuracy"], strict=True):
        assert len(content) == len(accuracy) == len(result["classes"])
        assert sum(content) <= 20
    stored = trainer.method.memory.labels
    assert result["memory_content"][-1] == torch.bincount(stored, minlength=6).tolist()
    assert result["memory_content"][0][2:] == [0, 0, 0, 0]
    assert result["class_accuracy"][0][2:] == [None] * 4
    confusion = torch.tensor(result["confusion"])
    share = 100 * confusion.diagonal() / confusion.sum(dim=1)
    assert result["class_accuracy"][-1] == pytest.approx(share.tolist(), abs=0.01)


def test_a_checkpoint_of_an_older_version_has_no_memory_content(tmp_path: Path) -> None:
    trainer = prepare(ER)
    for _ in trainer.steps():
        if len(trainer.accuracy) == 1:
            break
    state = trainer.state_dict()
    older = {k: v for k, v in state.items() if k not in ("memory_content", "class_accuracy")}
    resumed = prepare(OBSERVED)
    resumed.load_state_dict({**older, "probe": None})
    for _ in resumed.steps():
        pass
    assert [len(counts) for counts in resumed.memory_content] == [0, 6, 6]
    assert [len(values) for values in resumed.class_accuracy] == [0, 6, 6]


@pytest.mark.parametrize(
    "wrong",
    [
        {"memory_content": [[1, -1]]},
        {"memory_content": [3]},
        {"class_accuracy": [[101.0]]},
        {"prototypes": []},
        {"prototypes": {"space": "features", "step": [1], "task": [0], "old": [], "new": [1.0]}},
        {"prototypes": {"space": "features", "step": [1], "task": [0], "old": [2.0], "new": [1]}},
    ],
)
def test_unusable_values_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    done = run_in(tmp_path / "run", OBSERVED)
    assert fault(done.result) is None
    assert f"unusable value of {next(iter(wrong))}" in str(
        fault(json.loads(sealed(done.result, **wrong)))
    )
