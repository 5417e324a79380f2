"""A method in the middle of a task, with a full memory, ready to be measured."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import chain, cycle, islice
from typing import Any

import torch

from onpro.bench.breakdown import breakdown
from onpro.bench.clock import Footprint, Timed, wait
from onpro.bench.forwards import Forward, network_alone, recorded
from onpro.bench.images import fill, made_up_batches
from onpro.data.imageset import ImageSet
from onpro.memory import Memory
from onpro.nn.macs import macs
from onpro.runs.config import RunConfig
from onpro.runs.runner import prepare
from onpro.streams import Batch

WARM_UP = 3
"""Steps until an engine is at its speed: a graph is captured at the second."""


class Learner:
    """A method, its engine and, on a GPU, a queue of its own for its work.

    Built as a run builds it. Only passes over a memory when a task ends are cut to one: they are
    not part of a step.
    """

    forwards: list[Forward]
    """What goes through encoders in a step of the present task."""

    def __init__(self, config: RunConfig, data: ImageSet) -> None:
        settings: Any = config.settings
        if hasattr(settings, "epochs"):
            config = replace(config, settings=replace(settings, epochs=1))
        device = data.train.images.device
        self._queue = torch.cuda.Stream(device) if device.type == "cuda" else None
        self.footprint = Footprint(device)
        wait(device)  # the images were made in another queue
        with self.here(), self.footprint.watch():
            trainer = prepare(config, data)
            self._stepper = trainer.stepper
            self.engine = self._stepper.engine
            self.method = trainer.method
        self._stream = trainer.stream
        self._random = torch.Generator(device).manual_seed(0)
        self._batches: list[Batch] = []
        self._in_turn: Iterator[Batch] = iter(())

    def here(self) -> AbstractContextManager[object]:
        """Return where its steps are computed."""
        return torch.cuda.stream(self._queue)

    def enter(self, task: int) -> None:
        """Go to the middle of a task, as if earlier ones had been learned, with a full memory."""
        method, device = self.method, self.method.context.device
        with self.footprint.watch():  # as a run frees the graph of the last task
            self._stepper.use("eager")
        with self.here(), self.footprint.watch():
            tasks = self._stream.task_classes
            method.progress.seen |= set(chain.from_iterable(tasks[:task]))
            self._stepper.finish_task()
            method.progress.task = task - 1
            self._fill_memory(task)
            self._batches = self._batches_of(task)
            for batch in self._batches:  # now all classes have appeared
                self._stepper.step(batch)
            with self._op_by_op(), recorded(device) as self.forwards:
                self._stepper.step(self._batches[0])
            self._stepper.use(self.engine)
            self._in_turn = cycle(self._batches)
            for _ in range(WARM_UP):
                self.step()
        wait(device)

    @cached_property
    def flops_of_an_image(self) -> int:
        """Multiplications and additions of its encoder."""
        return 2 * macs(self.method.network.encoder, self.method.context.image_shape)

    def step(self) -> None:
        """One training step."""
        self._stepper.step(next(self._in_turn))

    def network_alone(self) -> Timed:
        """Return the encoder's part of a step."""
        with self.here():
            return Timed(network_alone(self.method, self.engine, self.forwards), self.here)

    def breakdown(self, steps: int) -> dict[str, float]:
        """Milliseconds of each part of a step; some steps are computed operation by operation."""
        with self.here(), self._op_by_op():
            self._stepper.use("eager")
            parts = breakdown(self._stepper, self._batches, steps)
            self._stepper.use(self.engine)
            return parts

    def _fill_memory(self, task: int) -> None:
        """At once, or by steps where the method has a memory of its own kind."""
        method, context = self.method, self.method.context
        memory = method.memory
        classes = list(chain.from_iterable(self._stream.task_classes[: task + 1]))
        if type(memory) is Memory and memory.capacity:
            fill(memory, classes, self._random)
        elif memory.capacity:
            for batch in made_up_batches(
                context.memory,
                self._batches_of(task)[0].images.shape[0],
                classes,
                task=task,
                image_shape=context.image_shape,
                generator=self._random,
            ):
                self._stepper.step(batch)

    def _batches_of(self, task: int) -> list[Batch]:
        """Return the full batches of a task."""
        stream = self._stream
        start = sum(stream.steps_per_task[:task])
        stream.load_state_dict(stream.state_dict() | {"position": start})
        batches = list(islice(stream, stream.steps_per_task[task]))
        return [batch for batch in batches if len(batch) == len(batches[0])]

    @contextmanager
    def _op_by_op(self) -> Iterator[None]:
        """See every operation, of a compiled encoder too."""
        with ExitStack() as stack:
            if self.engine == "compile":
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield
