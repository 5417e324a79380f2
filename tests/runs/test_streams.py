"""Runs on every kind of stream: all methods learn, evaluations do no harm, resuming is exact."""

import copy
import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.methods import er, methods, settings_for
from onpro.runs import Interrupted, RunConfig, prepare, read_config, run
from onpro.runs.files import write_json
from onpro.runs.result import describe
from onpro.runs.schema import fault
from onpro.streams import Blurry, Disjoint, IBlurry, Random, stream_kind, stream_kinds
from onpro.training import CurvePoint, Trainer, anytime_accuracy
from onpro.training.stepper import equal
from tests.methods.learners import NEWER
from tests.tiny_runs import ER, lasting, sealed

OF_EACH_KIND = pytest.mark.parametrize("kind", list(stream_kinds()))


def tiny_run(method: str = "er", **values: Any) -> RunConfig:
    settings = settings_for(method, "tiny")
    quick: dict[str, Any] = {
        "gdumb": {"epochs": 1},
        "gss": {"gradient_batches": 4, "gradient_batch": 8},
    }
    settings = replace(settings, **quick.get(method, {}))
    return replace(ER, method=method, settings=settings, **values)


def trained(config: RunConfig) -> Trainer:
    trainer = prepare(config)
    trainer.run()
    return trainer


@pytest.mark.parametrize(
    "method",
    [
        pytest.param(name, marks=[pytest.mark.thorough] if name in NEWER else [])
        for name in methods()
    ],
)
def test_every_method_learns_from_every_kind(method: str) -> None:
    for kind in stream_kinds():
        trainer = trained(tiny_run(method, stream=stream_kind(kind), limit_per_class=6))
        assert [len(row) for row in trainer.accuracy] == [1, 2, 3]
        assert trainer.curve[-1].images == trainer.stream.num_images
        assert equal(trainer.method.progress.seen, set(range(6)))


@pytest.mark.parametrize("method", methods())
def test_an_evaluation_changes_nothing(method: str) -> None:
    for kind in ("disjoint", "gaussian"):
        config = tiny_run(method, stream=stream_kind(kind), limit_per_class=6)
        once = trained(config)
        often = trained(replace(config, evaluations=len(once.stream)))
        assert len(often.curve) == len(often.stream) > len(once.curve) == 3
        assert set(once.curve) <= set(often.curve)
        assert often.accuracy == once.accuracy
        assert equal(often.method.state_dict(), once.method.state_dict()), kind


class States:
    """Notes the trainer's state after each step and evaluation."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.states: list[dict[str, Any]] = []

    def on_step(self, step: object) -> None:
        self.states.append(copy.deepcopy(self.trainer.state_dict()))

    on_evaluation = on_step


@OF_EACH_KIND
@pytest.mark.parametrize("hidden", [False, True])
def test_a_run_resumed_anywhere_equals_one_in_one_go(kind: str, hidden: bool) -> None:
    config = tiny_run(stream=stream_kind(kind), evaluations=3, hide_boundaries=hidden)
    straight = prepare(config)
    noted = States(straight)
    straight.listeners, straight.log_every = [noted], 1
    straight.run()
    assert len(noted.states) == len(straight.stream) + 3
    for state in noted.states:
        resumed = prepare(config)
        resumed.load_state_dict(state)
        resumed.run()
        assert (resumed.accuracy, resumed.curve) == (straight.accuracy, straight.curve)
        assert equal(resumed.method.state_dict(), straight.method.state_dict())


@OF_EACH_KIND
def test_a_stopped_run_goes_on_in_its_folder(kind: str, tmp_path: Path) -> None:
    config = tiny_run("gdumb", stream=stream_kind(kind), evaluations=3)
    undisturbed = run(config, tmp_path / "one go")
    trainer = prepare(config)

    def ask() -> int | None:
        return signal.SIGTERM if trainer.stream.position == 2 else None

    # Where tasks are not announced, step 2 may begin with a rehearsal, which is stopped.
    with pytest.raises(Interrupted, match=r"step [12] of"):
        run(config, tmp_path, trainer=trainer, stop=ask, checkpoint_every=1e-9)
    folder = tmp_path / config.folder
    assert read_config(folder) == config
    resumed = run(read_config(folder), tmp_path)
    assert lasting(resumed.result) == lasting(undisturbed.result)
    assert fault(json.loads((folder / "result.json").read_text())) is None


@OF_EACH_KIND
def test_a_configuration_is_read_back(kind: str, tmp_path: Path) -> None:
    config = tiny_run(stream=stream_kind(kind), hide_boundaries=True, evaluations=5)
    write_json(tmp_path / "config.json", describe(config))
    assert read_config(tmp_path) == config


def test_the_folder_names_the_kind_and_the_identity_has_its_settings() -> None:
    plain = tiny_run()
    assert replace(plain, stream=Disjoint()).what() == plain.what()
    assert "stream" not in plain.what()
    blurry = replace(plain, stream=Blurry(10))
    assert re.fullmatch(r"er-tiny-blurry-m20-s0-[0-9a-f]{8}", blurry.folder)
    assert blurry == replace(plain, stream=Blurry())
    assert blurry.what()["stream"] == {"kind": "blurry", "blur": 10.0}
    others = [plain, blurry, replace(plain, stream=Blurry(30)), replace(plain, stream=IBlurry())]
    others += [replace(blurry, hide_boundaries=True), replace(blurry, evaluations=7)]
    assert len({config.identity for config in others}) == len(others)


def test_boundaries_that_are_not_announced_cannot_be_hidden_again() -> None:
    for kind in (Random(), IBlurry()):
        config = tiny_run(stream=kind)
        assert replace(config, hide_boundaries=True) == config


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stream": "blurry"}, "stream must be an object that names a kind"),
        ({"stream": {"blur": 3}}, "stream must be an object that names a kind"),
        ({"stream": {"kind": "blury"}}, "no stream 'blury'; did you mean 'blurry'"),
        ({"stream": {"kind": "blurry", "blur": 300}}, "between 0 and 100, not 300"),
        ({"stream": {"kind": "blurry", "mean": 3}}, "no setting of the stream blurry 'mean'"),
        ({"stream": {"kind": "blurry", "blur": 20}}, "it has been changed since the run began"),
        ({"hide_boundaries": 1}, "hide_boundaries must be true or false, not 1"),
        ({"evaluations": "many"}, "evaluations must be a whole number, not 'many'"),
        ({"evaluations": -1}, "evaluations must be at least 0, not -1"),
    ],
)
def test_a_stream_that_cannot_be_read_is_told(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    values = describe(tiny_run(stream=Blurry())) | change
    write_json(tmp_path / "config.json", values)
    with pytest.raises(UserError, match=sentence):
        read_config(tmp_path)


def test_a_hidden_boundary_is_where_a_class_arrives_and_an_evaluation_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(er.ER, "end_task", lambda self: ended.append(self.progress.steps))
    trained(tiny_run(evaluations=6))
    assert ended == [2, 4, 6], "after each task"
    ended.clear()
    trained(tiny_run(hide_boundaries=True, evaluations=6))
    assert ended == [2, 4, 6], "before each new pair of classes, and at the end"
    ended.clear()
    config = tiny_run(stream=Random(), evaluations=5)
    trained(config)
    seen: set[int] = set()
    arrivals = []
    for steps, batch in enumerate(prepare(config).stream):
        if seen and not seen.issuperset(batch.classes):
            arrivals.append(steps)
        seen.update(batch.classes)
    assert ended == [*arrivals, 5]


def test_the_curve_is_of_the_classes_seen() -> None:
    trainer = trained(tiny_run(stream=Random()))
    assert [point.images for point in trainer.curve] == [10, 30, 48]
    last = trainer.confusion
    right = 100 * int(last.diagonal().sum()) / int(last.sum())
    assert trainer.curve[-1] == CurvePoint(5, 48, right)
    assert sum(trainer.accuracy[-1]) / 3 == pytest.approx(right), "groups are of equal size"


def test_results_have_accuracy_over_time(tmp_path: Path) -> None:
    done = run(tiny_run(stream=Blurry(), evaluations=6), tmp_path).result
    points = [CurvePoint(**point) for point in done["curve"]]
    assert [point.step for point in points] == [1, 2, 3, 4, 5, 6]
    assert done["last_accuracy"] == points[-1].accuracy
    assert done["anytime_accuracy"] == anytime_accuracy(points)
    assert done["config"]["stream"] == {"kind": "blurry", "blur": 10.0}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("anytime_accuracy", 101),
        ("anytime_accuracy", None),
        ("last_accuracy", -1),
        ("curve", []),
        ("curve", [3]),
        ("curve", [{"step": 1, "images": 10}]),
        ("curve", [{"step": 1, "images": 10, "accuracy": 200}]),
        ("curve", [{"step": k, "images": 10, "accuracy": 20} for k in (2, 1)]),
    ],
)
def test_unusable_values_over_time_are_told(tmp_path: Path, field: str, value: Any) -> None:
    done = run(ER, tmp_path).result
    damaged = json.loads(sealed(done, **{field: value}))
    assert fault(damaged) == f"result.json has an unusable value of {field}"
    older = {k: v for k, v in done.items() if k not in ("curve", field, "checksum")}
    assert fault(older) is None
