"""Train a method batch by batch: task boundaries, growth, precision, and the engine."""

import copy
import inspect
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from onpro.methods.base import Method, Terms
from onpro.methods.state import Stateful
from onpro.nn import convolutions
from onpro.nn.counter import counting_images
from onpro.streams import Batch
from onpro.training.engine import Engine, build_engine
from onpro.training.graphs import Step


class Stepper:
    """Trains a method batch by batch.

    A new task begins when the stream announces one; if the stream announces none, when a class
    appears for the first time.

    Args:
        method: The method to train; the stepper updates its `progress`.
        engine: How training steps are computed.
        lenient: Whether the graph engine computes steps that it cannot capture eagerly.

    Attributes:
        rehearsed: Number of steps in the rehearsal under way; 0 outside one.
        before_rehearsing: Called before each step of a rehearsal; an exception ends it halfway.
    """

    def __init__(
        self, method: Method[Any], engine: Engine = "eager", *, lenient: bool = False
    ) -> None:
        self.method = method
        self.rehearsed = 0
        self.before_rehearsing: Callable[[], None] = lambda: None
        self._lenient = lenient
        self._initial = _snapshots(method)
        self.use(engine)

    def use(self, engine: Engine) -> None:
        """Compute further steps with the given engine, without anything captured before."""
        self.engine = engine
        self._learn = self._built(self.method.learn)

    def _built(self, step: Step) -> Step:
        return build_engine(self.engine, self.method, step, lenient=self._lenient)

    def step(self, batch: Batch) -> Terms:
        """Train on one batch and return the terms of the loss as detached tensors."""
        if not len(batch):
            return {}
        if min(batch.classes, default=-1) < 0:
            raise ValueError("a batch must name the classes of its labels, numbers from 0 on")
        self._meet(batch)
        progress = self.method.progress
        with self._training(), self._autocasting():
            terms = self._learn(batch)
        if not isinstance(terms, Mapping):
            name = type(self.method).__name__
            raise TypeError(f"learn of {name} must return a dict of terms, not {terms!r}")
        self.method.after_step(batch)
        progress.steps += 1
        progress.steps_in_task += 1
        return {name: term.detach() for name, term in terms.items()}

    def _meet(self, batch: Batch) -> None:
        """Start a task if the batch is the first of one, and make room for new classes."""
        method, progress = self.method, self.method.progress
        unseen = set(batch.classes) - progress.seen
        announced = bool(unseen) if batch.task is None else batch.task != progress.announced
        begins = announced or not progress.task_open
        if begins:
            self.finish_task()
            progress.task += 1
            progress.announced = batch.task
            progress.task_open = True
            progress.steps_in_task = 0
            progress.seen_before_task = set(progress.seen)
        progress.seen |= unseen
        if max(batch.classes) >= method.network.classes:
            method.grow(max(batch.classes) + 1)
        if begins:
            method.start_task()

    def finish_task(self) -> None:
        """End the current task, if one is open; the next batch starts another.

        A task whose first step has failed is not counted: there is nothing of it to finish.
        """
        progress = self.method.progress
        if not progress.task_open:
            return
        progress.task_open = False
        if not progress.steps_in_task:
            progress.task -= 1
            return
        with self._training():
            self.method.end_task()
            self._rehearse()

    def settle(self) -> None:
        """Rehearse if predictions do not reflect everything stored yet.

        The random generators and the loss scale are restored afterwards, so that later training
        does not depend on how often this is called.
        """
        method = self.method
        if method.is_current:
            return
        random, scaler = method.random.state_dict(), method.scaler.state_dict()
        try:
            with self._training(), torch.enable_grad():
                self._rehearse()
        finally:
            method.random.load_state_dict(random)
            method.scaler.load_state_dict(scaler)
            self.use(self.engine)  # a captured step uses the previous generators and network

    def _rehearse(self) -> None:
        rehearse = None
        try:
            for stored in self.method.rehearsal():
                self.before_rehearsing()
                if rehearse is None:  # the rehearsal may begin with a new network
                    rehearse = self._built(self.method.rehearse)
                with self._autocasting():
                    rehearse(stored)
                self.rehearsed += 1
        finally:
            self.rehearsed = 0

    def forget(self, label: int) -> None:
        """Drop a class between two steps; if nothing is left to replay, restart task counting."""
        progress = self.method.progress
        self.method.forget(label)
        progress.seen.discard(label)
        progress.seen_before_task.discard(label)
        if not self.method.has_past:
            progress.task, progress.task_open = -1, False
        self.use(self.engine)  # a captured step may use tensors that have been replaced

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Set the precision of float32 convolutions, and count images.

        Where the network is not trained in IEEE single precision, TF32 is precise enough for passes
        in float32, such as those that choose images to replay: it is finer than bf16.
        """
        with convolutions(self.method.context.rounding), counting_images() as counter:
            try:
                yield
            finally:
                self.method.progress.images += counter.images

    def _autocasting(self) -> torch.autocast:
        """Let all forward passes of a step share autocast's cache of half-precision weights.

        The outermost context clears the cache on exit; forward passes enable autocast themselves.
        """
        return torch.autocast(self.method.context.device.type, enabled=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the method.

        Raises:
            TypeError: If an attribute of the method has changed that the state would not restore.
        """
        state = self.method.state_dict()
        attributes, now = vars(self.method), _snapshots(self.method)
        for name in sorted(self._initial.keys() | now.keys()):
            if equal(self._initial.get(name, MISSING), now.get(name, MISSING)):
                continue
            if name in state and not _saved(attributes.get(name)):  # by a state_dict of its own
                continue
            raise TypeError(
                f"self.{name} of {type(self.method).__name__} changes while it learns, but is not "
                "saved: make it a tensor, or an object with a state_dict, in the constructor"
            )
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state of the method."""
        self.method.load_state_dict(state)
        self.use(self.engine)  # a captured step uses the previous tensors


SAVED, MISSING = object(), object()
"""Stand for an attribute that is saved with a method, and for one that does not exist."""


def _snapshots(method: Method[Any]) -> dict[str, Any]:
    """Return copies of all attributes that must not change, because they are not saved.

    What a `cached_property` has stored is left out: a new method computes it again.
    """
    return {
        name: SAVED if _saved(value) else _snapshot(value)
        for name, value in vars(method).items()
        if not isinstance(inspect.getattr_static(type(method), name, None), cached_property)
    }


def _saved(value: object) -> bool:
    return isinstance(value, (Tensor, Stateful))


def _snapshot(value: Any) -> Any:
    """Return a copy of plain data, containers, arrays and dataclasses; other objects as they are.

    So a change inside another object, or inside a part with a `state_dict` that a container holds,
    goes unnoticed; `check_method` finds it if it matters to training.
    """
    if isinstance(value, dict):
        return {key: _snapshot(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [_snapshot(item) for item in value]
    if isinstance(value, (set, frozenset, bytearray)):
        return copy.copy(value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, Tensor) and not isinstance(value, torch.nn.Parameter):
        return value.detach().clone()
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _snapshot(getattr(value, field.name)) for field in fields(value)}
    return value


def equal(a: Any, b: Any) -> bool:
    """Return whether two states are equal in structure, types and values; NaN equals itself."""
    if a is b:
        return True
    if type(a) is not type(b):
        return isinstance(a, Mapping) and isinstance(b, Mapping) and equal(dict(a), dict(b))
    if isinstance(a, Tensor):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        a, b = a.detach().cpu(), b.detach().cpu()
        if torch.equal(a, b):
            return True
        bits = [tensor.contiguous().view(-1).view(torch.uint8) for tensor in (a, b)]
        return torch.equal(*bits)  # where something is not a number
    if isinstance(a, dict):
        typed = [{(type(key), key) for key in each} for each in (a, b)]
        return typed[0] == typed[1] and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)
