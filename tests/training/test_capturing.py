"""When steps are captured and replayed, with stand-ins for CUDA graphs that a CPU can run."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from onpro import OnlineClassifier, image_classifier
from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.losses import contrastive
from onpro.methods import Context, method, methods, settings_for
from onpro.methods.base import Method, Terms
from onpro.methods.registry import AnyMethod
from onpro.nn import Precision
from onpro.nn.counter import counting_images
from onpro.streams import Batch, ClassIncremental
from onpro.training import engine, graphs
from onpro.training.engine import GraphEngine
from onpro.training.graphs import CapturedStep, Step
from onpro.training.stepper import Stepper, equal


class Operations(TorchDispatchMode):
    """Notes the operations that run inside: their names, numbers, shapes and types."""

    paused = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.noted: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not Operations.paused:
            self.noted.append((str(func), [_noted(arg) for arg in (*args, *kwargs.values())]))
        return func(*args, **kwargs)


def _noted(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.shape, value.dtype
    if isinstance(value, list | tuple):
        return [_noted(item) for item in value]
    return value if isinstance(value, int | float | str) else type(value)


class StandIn:
    """Runs a captured step on the CPU; the operations must be those of the captured one."""

    captured = runs = 0
    watches = False

    def __init__(self, method: AnyMethod, step: Step, batch: Batch, pool: object) -> None:
        type(self).captured += 1
        self.method, self._step = method, step
        self._terms: Terms | None = None
        self._terms, self._operations = self._run(batch)

    def _run(self, batch: Batch) -> tuple[Terms, list[Any]]:
        type(self).runs += 1
        operations = Operations()
        with operations if self.watches else nullcontext():
            return self._step(batch), operations.noted

    def restore_state(self) -> bool:
        return True

    def replay(self, batch: Batch) -> Terms:
        if self._terms is not None:  # the step that was captured
            terms, self._terms = self._terms, None
            return terms
        memory = self.method.memory
        counters = getattr(memory, "counters", None)
        terms, operations = self._run(batch)
        if counters is not None:  # a graph leaves them to the engine
            memory.counters = counters
        assert operations == self._operations
        return terms


class Pool:
    def __init__(self, device: object) -> None:
        pass

    @contextmanager
    def growing(self) -> Iterator[None]:
        yield

    def has_room_beside(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def free_others(self) -> None:
        pass


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that computes as a GPU does, with stand-ins for graphs."""
    monkeypatch.setattr(engine, "CapturedStep", StandIn)
    monkeypatch.setattr(engine, "GraphPool", Pool)
    monkeypatch.setattr(StandIn, "captured", 0)
    monkeypatch.setattr(StandIn, "runs", 0)

    def whole_matrix(similarity: Any, labels: Any, temperature: float, *, new: bool = False) -> Any:
        same = labels[:, None] == labels[None, :]
        itself = torch.eye(len(labels), dtype=torch.bool) if new else None
        rows = contrastive.RowLosses.of(similarity, temperature, itself)
        return rows.mean_loss(same).mean()

    monkeypatch.setattr(contrastive, "row_loss", whole_matrix)


def learner(
    name: str, memory: int = 50, classes: int = 6, precision: Precision = "fp32", **changed: Any
) -> AnyMethod:
    """A method with a memory that samples as on a GPU."""
    data = tiny()
    normalise = Normalise(data.mean, data.std)
    context = Context(
        data.image_shape, normalise, num_classes=classes, memory=memory, precision=precision
    )
    settings: Any = settings_for(name, "tiny")
    if hasattr(settings, "replay_batch"):
        settings = replace(settings, replay_batch=8)
    found = method(name)(replace(settings, **changed), context)
    found.memory.samples_by_key = True
    return found


def capturing(learner: AnyMethod) -> Stepper:
    """Trains with graphs."""
    stepper = Stepper(learner)
    stepper._learn = GraphEngine(learner, learner.learn)
    return stepper


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", [*sorted(methods()), "er-kd", "er-mkd", "er-ccldc", "er-gwm", "onpro-mkd"]
)
def test_a_replayed_step_runs_the_operations_that_were_captured(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandIn, "watches", True)
    # The optimizers count steps on the host here, and on the device where they are captured.
    monkeypatch.setattr(Method, "step", _unwatched(Method.step))
    learn_both_ways(name)


@pytest.mark.parametrize("name", ["agem", "cope", "er", "onpro"])
def test_replayed_steps_lead_to_the_same_state(name: str) -> None:
    learn_both_ways(name)


def learn_both_ways(name: str) -> None:
    """Replayed steps must lead to the state of eager ones."""
    plain, captured = Stepper(learner(name)), capturing(learner(name))
    for batch in ClassIncremental(tiny(train_per_class=30), 3):
        plain.step(batch)
        captured.step(batch)
    plain.finish_task()
    captured.finish_task()
    assert equal(captured.method.state_dict(), plain.method.state_dict())
    assert StandIn.captured


def _unwatched(step: Any) -> Any:
    def inner(self: AnyMethod) -> None:
        Operations.paused = True
        try:
            step(self)
        finally:
            Operations.paused = False

    return inner


@pytest.mark.parametrize(("name", "tasks", "captures"), [("er", 100, 2), ("onpro", 20, 4)])
def test_streams_of_many_tasks_need_few_captures(name: str, tasks: int, captures: int) -> None:
    """One while the memory fills and one when it is full, for OnPro again in later tasks.

    ER's steps are the same in all tasks. OnPro has two kinds in later ones: the first step, and
    those that follow.
    """
    data = tiny(classes=tasks, train_per_class=20, test_per_class=1)
    changed: dict[str, Any] = {} if name == "er" else {"rotations": 1, "replay_per_class": 8}
    stepper = capturing(learner(name, classes=tasks, **changed))
    eager = 0
    for batch in ClassIncremental(data, tasks):
        before = StandIn.runs
        stepper.step(batch)
        eager += StandIn.runs == before
    assert StandIn.captured <= captures
    assert eager <= 8


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_step_that_cannot_be_captured_is_computed_eagerly_where_that_is_allowed(
    precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(StandIn):
        """Nothing is computed in a capture; weights of 0 stand for what is not."""

        def __init__(self, method: AnyMethod, step: Step, batch: Batch, pool: object) -> None:
            torch.rand(3, generator=method.random["memory"])
            method.memory.counters = (7, 7)
            network = copy.deepcopy(method.network.state_dict())
            method.network.load_state_dict({k: 0 * value for k, value in network.items()})
            method.optimizer.zero_grad()
            with counting_images():
                logits = method.network.logits(method.normalise(batch.images))
            method.backward({"ce": logits.sum()})
            method.scaler.unscale_(method.optimizer)
            method.network.load_state_dict(network)
            raise UserError("it cannot be captured")

    monkeypatch.setattr(engine, "CapturedStep", Refusing)
    batches = list(ClassIncremental(tiny(), 3))[:6]
    plain = Stepper(learner("er", precision=precision))
    lenient, strict = (capturing(learner("er", precision=precision)) for _ in range(2))
    lenient._learn = GraphEngine(lenient.method, lenient.method.learn, lenient=True)
    for batch in batches:
        plain.step(batch)
        lenient.step(batch)
    assert equal(lenient.method.state_dict(), plain.method.state_dict())
    strict.step(batches[0])
    strict.step(batches[1])
    with pytest.raises(UserError, match="cannot be captured"):
        strict.step(batches[2])


def test_a_classifier_replays_steps_between_new_classes_forgetting_and_odd_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tiny(classes=4)
    images = data.train.images.permute(0, 2, 3, 1).numpy()
    labels = data.train.labels.numpy()
    order = np.random.default_rng(0).permutation(len(labels))

    def learned(engine_name: str) -> tuple[Any, int]:
        monkeypatch.setattr(image_classifier, "pick_engine", lambda *_: engine_name)
        monkeypatch.setattr(StandIn, "runs", 0)
        clf = OnlineClassifier("er", memory=30, device="cpu", replay_batch=8)
        for position, start in enumerate(range(0, 200, 25)):  # batches of 10, 10 and 5
            chosen = order[start : start + 25]
            known = chosen[labels[chosen] <= position]  # a class appears with every call
            clf.partial_fit(images[known], labels[known])
            clf.method_.memory.samples_by_key = True
            if position == 5:
                clf.forget(1)
            clf.predict(images[:2])
        return clf.predict_proba(images[:20]), StandIn.runs

    expected, _ = learned("eager")
    found, replayed = learned("graph")
    assert replayed > 3
    np.testing.assert_array_equal(found, expected)


def test_values_may_move_from_one_tensor_of_the_state_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: Any = learner("er")
    found.latest, found.before = torch.tensor(1.0), torch.tensor(0.0)
    places = [found.latest, found.before]

    def step(batch: Batch) -> Terms:
        found.latest, found.before = found.latest + 1, found.latest
        return {}

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Mock())
    monkeypatch.setattr(graphs, "capture", lambda *_: nullcontext())
    batch = next(iter(ClassIncremental(tiny(), 3)))
    CapturedStep(found, step, batch, Mock())
    assert (found.latest, found.before) == (2, 1)
    assert [found.latest is places[0], found.before is places[1]] == [True, True]
