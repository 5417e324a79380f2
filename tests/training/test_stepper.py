"""The stepper: task boundaries, rehearsal, counted images, and a state that is complete."""

import copy
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.memory.reservoir import reservoir_batch
from onpro.methods import Context, Settings, method, settings_for
from onpro.methods.base import About, Method, Terms
from onpro.nn.counter import count_images, counting_images
from onpro.nn.teacher import Teacher
from onpro.streams import Batch, ClassIncremental
from onpro.training import engine
from onpro.training.stepper import Stepper, equal

DATA = tiny(classes=6, train_per_class=10, test_per_class=2, image_size=8)


class Plain(Method[Settings]):
    """Classifies new images and stores them."""

    about = About("plain", "Plain", "None", 2024, "images", "linear head", "10")

    def __init__(self, settings: Settings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1)
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        terms = self.terms(batch)
        self.minimise(terms)
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def terms(self, batch: Batch) -> Terms:
        logits = self.network.logits(self.normalise(batch.images))
        return {"ce": cross_entropy(logits, batch.labels)}


class Rehearsing(Plain):
    """Trains on the whole memory, in random order, after each task and before predictions."""

    def __init__(self, settings: Settings, context: Context) -> None:
        super().__init__(settings, context)
        self.rehearsed = torch.zeros((), dtype=torch.int64)

    def rehearsal(self) -> Iterator[Batch]:
        self.rehearsed = self.memory.arrived[0].clone()
        order = torch.randperm(len(self.memory), generator=self.random["order"])
        stored = self.memory.take(order)
        yield Batch(stored.images, stored.labels, None, ())

    def rehearse(self, stored: Batch) -> Terms:
        terms = self.terms(stored)
        self.minimise(terms)
        return terms

    @property
    def is_current(self) -> bool:
        return bool(self.rehearsed == self.memory.arrived[0])


def build(cls: type[Plain] = Plain, **changes: Any) -> Stepper:
    context = Context(DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=6, memory=15)
    settings = Settings(encoder="slim", augmentation="none")
    return Stepper(cls(settings, replace(context, **changes)))


def batches(*, announced: bool = True) -> list[Batch]:
    """Two batches of ten images for each of three tasks of two classes."""
    stream = ClassIncremental(DATA, 3)
    return [batch if announced else replace(batch, task=None) for batch in stream]


def test_a_step_returns_terms_without_gradient() -> None:
    terms = build().step(batches()[0])
    assert terms
    assert not any(term.requires_grad for term in terms.values())


def test_a_step_without_terms_is_an_error() -> None:
    class Silent(Plain):
        def learn(self, batch: Batch) -> Any:
            super().learn(batch)

    with pytest.raises(TypeError, match="learn of Silent must return a dict of terms, not None"):
        build(Silent).step(batches()[0])


# Boundaries


@pytest.mark.parametrize("announced", [True, False])
def test_tasks_are_counted_whether_or_not_they_are_announced(announced: bool) -> None:
    stepper = build(num_classes=6 if announced else None)
    places = []
    for batch in batches(announced=announced):
        stepper.step(batch)
        progress = stepper.method.progress
        places.append((progress.task, progress.steps_in_task, len(progress.seen_before_task)))
    assert places == [(0, 1, 0), (0, 2, 0), (1, 1, 2), (1, 2, 2), (2, 1, 4), (2, 2, 4)]


def test_an_announced_task_may_bring_no_new_class() -> None:
    stepper, first = build(), batches()[0]
    for task in (0, 0, 1):
        stepper.step(replace(first, task=task))
    assert stepper.method.progress.task == 1
    assert stepper.method.progress.seen_before_task == {0, 1}


def test_a_new_class_begins_no_task_where_tasks_are_announced() -> None:
    stepper, stream = build(num_classes=None), batches()
    stepper.step(stream[0])
    stepper.step(replace(stream[2], task=0))
    assert stepper.method.progress.task == 0
    assert stepper.method.network.classes == 4


def test_the_network_has_room_for_a_task_when_it_starts() -> None:
    widths = []

    class Looking(Plain):
        def start_task(self) -> None:
            widths.append((self.network.classes, len(self.progress.seen)))

    stepper = build(Looking, num_classes=None)
    for batch in batches(announced=False):
        stepper.step(batch)
    assert widths == [(2, 2), (4, 4), (6, 6)]


def test_a_forgotten_class_has_not_been_seen() -> None:
    stepper, stream = build(num_classes=None), batches(announced=False)
    for batch in stream[:4]:
        stepper.step(batch)
    progress = stepper.method.progress
    stepper.forget(1)
    assert (progress.seen, progress.seen_before_task, progress.task) == ({0, 2, 3}, {0}, 1)
    stepper.step(stream[0])  # it comes back, and begins a task as any new class
    assert (progress.seen, progress.seen_before_task, progress.task) == ({*range(4)}, {0, 2, 3}, 2)


def test_forgetting_everything_restarts_the_count_of_tasks() -> None:
    stepper, stream = build(num_classes=None), batches(announced=False)
    for batch in stream[:4]:
        stepper.step(batch)
    for label in (0, 1, 2):
        stepper.forget(label)
        assert stepper.method.progress.task == 1
        assert stepper.method.progress.task_open
    stepper.forget(3)
    assert stepper.method.progress.task == -1
    assert not stepper.method.progress.task_open
    stepper.step(stream[4])
    assert stepper.method.progress.task == 0
    assert stepper.method.progress.steps_in_task == 1


def test_a_task_whose_first_step_failed_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PASS looks at the images of a task when it ends; here there are none."""
    context = Context(DATA.image_shape, Normalise(DATA.mean, DATA.std))
    stepper = Stepper(method("pass")(settings_for("pass", "tiny"), context))
    with monkeypatch.context() as patched:
        patched.setattr(stepper.method, "augment", Mock(side_effect=MemoryError))
        with pytest.raises(MemoryError):
            stepper.step(batches(announced=False)[0])
    terms = stepper.step(batches(announced=False)[2])
    assert terms.keys() == {"ce"}, "as in the first task"
    assert stepper.method.progress.task == 0


# Rehearsal


def test_a_rehearsal_follows_the_end_of_a_task() -> None:
    stepper = build(Rehearsing)
    for batch in batches()[:2]:
        stepper.step(batch)
    assert not stepper.method.is_current
    weights = stepper.method.network.classifier.weight.detach().clone()
    stepper.finish_task()
    assert stepper.method.is_current
    assert not torch.equal(stepper.method.network.classifier.weight, weights)


@torch.no_grad()
def test_settling_rehearses_once_and_moves_no_random_state() -> None:
    stepper = build(Rehearsing)
    with torch.enable_grad():
        stepper.step(batches()[0])
    before = stepper.method.random.state_dict()
    stepper.settle()
    assert stepper.method.is_current
    assert equal(stepper.method.random.state_dict(), before)
    images = stepper.method.progress.images
    stepper.settle()
    assert stepper.method.progress.images == images


def test_settling_restores_the_loss_scale() -> None:
    stepper = build(Rehearsing, precision="fp16")
    stepper.step(batches()[0])
    stepper.method.scaler.update(1024.0)
    before = stepper.method.scaler.state_dict()
    stepper.settle()
    assert stepper.method.scaler.state_dict() == before


def test_a_rehearsal_that_fails_moves_no_random_state() -> None:
    class Failing(Rehearsing):
        def rehearse(self, stored: Batch) -> Terms:
            raise ZeroDivisionError

    stepper = build(Failing)
    stepper.step(batches()[0])
    before = stepper.method.random.state_dict()
    with pytest.raises(ZeroDivisionError):
        stepper.settle()
    assert equal(stepper.method.random.state_dict(), before)


def test_a_network_made_for_a_rehearsal_is_the_one_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Renewing(Rehearsing):
        def rehearsal(self) -> Iterator[Batch]:
            self.network = self.make_network()
            self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1)
            yield from super().rehearsal()

    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda module, **_: compiled.append(module))
    stepper = build(Renewing)
    stepper.use("compile")
    stepper.step(batches()[0])
    stepper.finish_task()
    assert compiled[-1] is stepper.method.network.encoder


# Engines


def test_another_engine_takes_over_between_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager steps before and after those of another engine, here one that is never captured."""
    used: list[str] = []

    class Graph:
        def __init__(self, method: object, step: Callable[[Batch], Terms], **_: object) -> None:
            self.step = step

        def __call__(self, batch: Batch) -> Terms:
            used.append("graph")
            return self.step(batch)

    monkeypatch.setattr(engine, "GraphEngine", Graph)
    mixed, alone = build(), build()
    for position, batch in enumerate(batches()):
        mixed.use("graph" if position in (2, 3) else "eager")
        mixed.step(batch)
        alone.step(batch)
    assert len(used) == 2
    assert equal(mixed.state_dict(), alone.state_dict())


# Precision


class TwoSteps(Plain):
    """Takes two optimizer steps on each batch, and notes the logits after the first."""

    logits = torch.zeros(0)

    def learn(self, batch: Batch) -> Terms:
        super().learn(batch)
        images = self.normalise(batch.images)
        TwoSteps.logits = self.network.logits(images).detach()
        return self.terms(batch)


def test_a_second_forward_uses_the_weights_after_the_first_optimizer_step() -> None:
    stepper, batch = build(TwoSteps, precision="bf16"), batches()[0]
    stepper.step(batch)
    method = stepper.method
    logits = method.network.logits(method.normalise(batch.images))
    assert torch.equal(TwoSteps.logits, logits)


def test_only_half_precision_with_a_small_range_scales_the_loss() -> None:
    for precision, scaled in (("fp32", False), ("bf16", False), ("fp16", True)):
        method = build(precision=precision).method
        assert method.scaler.is_enabled() is scaled
        assert float(method.loss_scale) == (65536 if scaled else 1)


def test_the_loss_scale_is_saved_and_restored() -> None:
    source = build(precision="fp16")
    source.step(batches()[0])
    source.method.scaler.update(256.0)
    resumed = build(precision="fp16")
    resumed.load_state_dict(copy.deepcopy(source.state_dict()))
    assert float(resumed.method.loss_scale) == 256
    assert resumed.method.scaler.state_dict() == source.method.scaler.state_dict()


# Counted images


def test_images_of_steps_and_rehearsals_are_counted() -> None:
    stepper = build(Rehearsing)
    for batch in batches()[:2]:
        stepper.step(batch)
    assert stepper.method.progress.images == 20
    stepper.finish_task()
    assert stepper.method.progress.images == 35  # and the memory
    stepper.method.predict(DATA.test.images)
    assert stepper.method.progress.images == 35


def test_a_step_does_not_count_for_whoever_calls_it() -> None:
    stepper = build()
    with counting_images() as outer:
        count_images(3)
        stepper.step(batches()[0])
    assert outer.images == 3
    assert stepper.method.progress.images == 10


def test_images_of_a_step_that_fails_are_counted() -> None:
    class Failing(Plain):
        def terms(self, batch: Batch) -> Terms:
            super().terms(batch)
            raise ZeroDivisionError

    stepper = build(Failing)
    with pytest.raises(ZeroDivisionError):
        stepper.step(batches()[0])
    assert stepper.method.progress.images == 10
    assert stepper.method.progress.steps == 0


# State


@dataclass
class Tally:
    """A number in a dataclass."""

    steps: int = 0


def changing(make: Callable[[], Any], change: Callable[[Any], Any]) -> type[Plain]:
    """A method whose attribute `notes` each step changes."""

    class Changing(Plain):
        def __init__(self, settings: Settings, context: Context) -> None:
            super().__init__(settings, context)
            self.notes = make()

        def learn(self, batch: Batch) -> Terms:
            terms = super().learn(batch)
            changed = change(self.notes)
            if changed is not None:
                self.notes = changed
            return terms

    return Changing


def add_step(tally: Tally) -> None:
    tally.steps += 1


def advance(generator: torch.Generator) -> None:
    torch.rand(1, generator=generator)


LOST: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "number": (lambda: 0, lambda n: n + 1),
    "list": (list, lambda notes: notes.append(1)),
    "dict": (dict, lambda notes: notes.update({len(notes): 1})),
    "set": (set, lambda notes: notes.add(len(notes))),
    "deque": (deque, lambda notes: notes.append(1)),
    "bytearray": (bytearray, lambda notes: notes.append(1)),
    "array in place": (lambda: np.zeros(2), lambda notes: notes.__iadd__(1)),
    "array replaced": (lambda: np.zeros(2), lambda notes: notes + 1),
    "dataclass": (Tally, add_step),
    "tensor in a list": (lambda: [torch.zeros(2)], lambda notes: [notes[0] + 1]),
    "tensor in a list, in place": (lambda: [torch.zeros(2)], lambda notes: [notes[0].add_(1)]),
    "generator": (torch.Generator, advance),
    "tensor made late": (lambda: None, lambda _: torch.ones(2)),
    "tensor given up": (lambda: torch.ones(2), lambda _: 0),
    "object replaced": (lambda: object, lambda _: type),
}


@pytest.mark.parametrize("kind", LOST)
def test_a_state_without_something_that_changed_is_refused(kind: str) -> None:
    stepper = build(changing(*LOST[kind]))
    stepper.state_dict()
    stepper.step(batches()[0])
    with pytest.raises(TypeError, match=r"self\.notes of Changing changes while it learns"):
        stepper.state_dict()


def test_a_part_made_while_learning_is_refused() -> None:
    """It would be saved, but a new method has no such part to restore it to."""

    class Late(Plain):
        teacher: Teacher | None = None

        def end_task(self) -> None:
            self.teacher = Teacher(self.network)

    stepper = build(Late)
    stepper.step(batches()[0])
    stepper.state_dict()
    stepper.finish_task()
    with pytest.raises(TypeError, match=r"self\.teacher of Late"):
        stepper.state_dict()


def test_an_attribute_that_is_deleted_is_refused() -> None:
    class Deleting(Plain):
        def __init__(self, settings: Settings, context: Context) -> None:
            super().__init__(settings, context)
            self.first = True

        def learn(self, batch: Batch) -> Terms:
            del self.first
            return super().learn(batch)

    stepper = build(Deleting)
    stepper.step(batches()[0])
    with pytest.raises(TypeError, match=r"self\.first of Deleting"):
        stepper.state_dict()


class Sound(Plain):
    """Has attributes of many kinds that do not change, or are saved."""

    def __init__(self, settings: Settings, context: Context) -> None:
        super().__init__(settings, context)
        self.steps = torch.zeros((), dtype=torch.int64)
        self.own = 0
        self.best = float("nan")
        self.table = np.array([[1.0, float("nan")]])
        self.names = {"a": [1, 2], "b": deque([Tally()])}
        self.parts = [self.network, *self.network.parameters()]
        self.equal = [1, 2]
        self.transform = lambda images: images

    @cached_property
    def half(self) -> float:
        return self.context.memory / 2

    def learn(self, batch: Batch) -> Terms:
        assert self.half == 7.5
        self.steps += 1
        self.own += 1
        self.equal = [*self.equal]  # another object of the same value
        return super().learn(batch)

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"own": self.own}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.own = state["own"]


def test_what_does_not_change_or_is_saved_raises_no_alarm() -> None:
    stepper = build(Sound)
    for batch in batches()[:3]:
        stepper.step(batch)
    state = copy.deepcopy(stepper.state_dict())
    assert (int(state["steps"]), state["own"]) == (3, 3)
    resumed = build(Sound)
    resumed.load_state_dict(state)
    for batch in batches()[3:]:
        stepper.step(batch)
        resumed.step(batch)
    assert equal(resumed.state_dict(), stepper.state_dict())


def test_a_state_is_equal_only_to_the_same_values() -> None:
    state: dict[str, Any] = {"a": [torch.ones(2), 1, None], "b": (0.5, "x")}
    assert equal(state, copy.deepcopy(state))
    others: list[Any] = [
        {"a": [torch.ones(2), 1, None]},
        {"a": [torch.ones(2), 1], "b": (0.5, "x")},
        {"a": [torch.ones(2).double(), 1, None], "b": (0.5, "x")},
        {"a": [torch.zeros(2), 1, None], "b": (0.5, "x")},
        {"a": [torch.ones(2), 1, None], "b": (0.5, "y")},
        None,
    ]
    assert not any(equal(state, other) for other in others)
    assert not equal(Tensor([1.0]), 1.0)
    assert not equal({1: 2}, {True: 2})
    assert equal({"lost": torch.tensor([torch.nan])}, {"lost": torch.tensor([torch.nan])})
