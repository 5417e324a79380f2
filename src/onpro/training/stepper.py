"""Feed batches to a method: boundaries, growth, precision, and the engine that computes steps."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from onpro.methods.base import Method, Stateful, Terms
from onpro.nn import convolutions
from onpro.nn.counter import counting_images
from onpro.streams import Batch
from onpro.training.engine import Engine, build_engine

PLAIN = (bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict, type(None))
"""Types of attributes that are not saved with a method, and so must not change."""


class Stepper:
    """Trains a method batch by batch.

    A new task begins where the stream says so or, where it says nothing, with the arrival of a
    class never seen before.

    Args:
        method: what learns; the stepper keeps its `progress` and its `scaler`.
        engine: how its steps are computed.
    """

    def __init__(self, method: Method[Any], engine: Engine = "eager") -> None:
        self.method = method
        context = method.context
        method.scaler = torch.amp.GradScaler(
            context.device.type, enabled=context.autocast is torch.float16
        )
        self._constants = _constants(method)
        self.use(engine)

    def use(self, engine: Engine) -> None:
        """Compute further steps with an engine, which starts anew."""
        self.engine = engine
        self._learn = build_engine(engine, self.method, self.method.learn)

    def step(self, batch: Batch) -> Terms:
        """Learn from one batch; return the terms of its loss as detached tensors."""
        if not len(batch):
            return {}
        if min(batch.classes, default=-1) < 0:
            raise ValueError("a batch must name the classes of its labels, numbers from 0 on")
        self._meet(batch)
        progress = self.method.progress
        with self._training(), self._autocasting():
            terms = self._learn(batch)
        self.method.after_step(batch)
        progress.steps += 1
        progress.steps_in_task += 1
        return {name: term.detach() for name, term in terms.items()}

    def _meet(self, batch: Batch) -> None:
        """Begin a task where one begins, and make room for new classes."""
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
        """Close the current task, once; the training loop calls this where boundaries are known."""
        progress = self.method.progress
        if progress.task_open:
            progress.task_open = False
            with self._training():
                self.method.end_task()
                self._rehearse()

    def settle(self) -> None:
        """Bring predictions up to date with everything stored.

        The random generators stay as they were, so that what is learned does not depend on how
        often somebody asks.
        """
        method = self.method
        if not method.is_current:
            random = method.random.state_dict()
            with self._training(), torch.enable_grad():
                self._rehearse()
            method.random.load_state_dict(random)

    def _rehearse(self) -> None:
        rehearse = build_engine(self.engine, self.method, self.method.rehearse)
        for stored in self.method.rehearsal():
            with self._autocasting():
                rehearse(stored)

    def forget(self, label: int) -> None:
        """Drop a class between two steps; the stream starts anew if nothing is left to replay."""
        self.method.forget(label)
        if not self.method.has_past:
            self.method.progress.task, self.method.progress.task_open = -1, False

    @contextmanager
    def _training(self) -> Iterator[None]:
        """Round float32 convolutions as the precision says, backward passes included."""
        method = self.method
        precision = method.context.precision
        with (
            convolutions("tf32" if precision == "tf32" else "ieee"),
            counting_images() as counter,
        ):
            try:
                yield
            finally:
                method.progress.images += counter.images

    def _autocasting(self) -> torch.autocast:
        """Around all forward passes of a step: they share the weights rounded for autocast."""
        return torch.autocast(self.method.context.device.type, enabled=False)

    def state_dict(self) -> dict[str, Any]:
        """The state of the method.

        Raises:
            TypeError: if an attribute of the method has changed that is not part of its state.
        """
        for name, value in _constants(self.method).items():
            if name not in self._constants or self._constants[name] != value:
                raise TypeError(
                    f"self.{name} of {type(self.method).__name__} changes while it learns, but is "
                    "not saved: keep it in a tensor, or in an object with a state_dict"
                )
        return self.method.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state of the method."""
        self.method.load_state_dict(state)
        self.use(self.engine)  # a recording reads the tensors that were there before


def _constants(method: Method[Any]) -> dict[str, Any]:
    """Copies of all attributes that are not saved with the method, and so must not change."""
    return {
        name: _copied(value)
        for name, value in vars(method).items()
        if isinstance(value, PLAIN) and not isinstance(value, Stateful)
    }


def _copied(value: Any) -> Any:
    """A plain value to compare with later; whatever else a container holds is told by identity."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value) if not value else [_copied(item) for item in value]
    return value if isinstance(value, PLAIN) else id(value)
