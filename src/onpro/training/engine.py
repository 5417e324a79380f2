"""How a training step is computed: operation by operation, compiled, or as one CUDA graph."""

import functools
import gc
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.methods.base import Stateful, Terms
from onpro.methods.registry import AnyMethod
from onpro.nn.counter import count_images, counting_images
from onpro.streams import Batch

Engine = Literal["eager", "compile", "graph"]

Step = Callable[[Batch], Terms]
"""One training step on a batch."""


def pick_engine(name: Literal["auto"] | Engine, device: torch.device) -> Engine:
    """The engine of that name; auto: graphs on a GPU, operation by operation elsewhere."""
    if name == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if name == "graph" and device.type != "cuda":
        raise UserError(f"--engine graph needs a GPU, and the run is on the {device.type}.")
    return name


def build_engine(name: Engine, method: AnyMethod, step: Step) -> Step:
    """A step of a method, `learn` or `rehearse`, computed by the engine of that name."""
    if name == "graph" and method.is_recordable:
        return GraphEngine(method, step)
    if name == "compile":
        # Forward passes of a step differ in size, and so do steps while the memory fills.
        method.network.encoder.compile(dynamic=True)
    return step


def phase_of(method: AnyMethod) -> Hashable:
    """State on the host that determines the operations of a step."""
    progress = method.progress
    return (
        progress.task,
        progress.steps_in_task > 0,
        len(progress.seen),
        method.network.classes,
        method.memory.phase,
        tuple(group["lr"] for group in method.optimizer.param_groups),
    )


class GraphEngine:
    """Repeats a step as one CUDA graph, as long as the method's phase lasts.

    A step of hundreds of small operations waits for the host, which issues them one by one. A
    graph is issued at once. The first step of a phase is computed operation by operation, the
    second is recorded, and from then on the recording is played with other images.

    Random numbers are those of the step itself, and so are the results.
    """

    def __init__(self, method: AnyMethod, step: Step) -> None:
        self.method = method
        self._step = step
        self._phase: Hashable = None
        self._recording: Recording | None = None

    def __call__(self, batch: Batch) -> Terms:
        """One training step."""
        phase = phase_of(self.method), batch.images.shape
        if phase != self._phase or (self._recording is not None and self._recording.outdated()):
            self._phase = phase
            self._forget()
            return self._step(batch)
        if self._recording is None:
            self._recording = Recording(self.method, self._step, batch)
        return self._recording.play(batch)

    def _forget(self) -> None:
        """Free the memory of a recording that is no longer played: a step takes as much again."""
        if self._recording is not None:
            torch.cuda.current_stream().synchronize()
            self._recording = None
            torch.cuda.empty_cache()


class Recording:
    """A step of a method as a CUDA graph."""

    def __init__(self, method: AnyMethod, step: Step, batch: Batch) -> None:
        self.batch = replace(batch, images=batch.images.clone(), labels=batch.labels.clone())
        self.graph = torch.cuda.CUDAGraph()
        for generator in method.random:
            self.graph.register_generator_state(generator)
        self._state = list(_tensors(method))
        try:
            with (
                counting_images() as counter,
                _capturable(method.optimizer),
                recorded_in(self.graph),
            ):
                terms = step(self.batch)
                self.names = list(terms)
                values = [term.detach().float() for term in terms.values()]
                self.values = torch.stack(values) if values else None
                _write_back(self._state)
        except RuntimeError as error:
            raise explained(error, method.about.name) from None
        self.images = counter.images

    def outdated(self) -> bool:
        """Whether other tensors have taken the place of those the graph reads."""
        return any(place.current is not place.tensor for place in self._state)

    def play(self, batch: Batch) -> Terms:
        """The step, with another batch of the same size."""
        self.batch.images.copy_(batch.images)
        self.batch.labels.copy_(batch.labels)
        self.graph.replay()
        count_images(self.images)
        if self.values is None:
            return {}
        return dict(zip(self.names, self.values.clone().unbind(), strict=True))


def explained(error: RuntimeError, method: str) -> Exception:
    """What to raise for an error in a recording: a sentence, if it is the recording that failed.

    The end of a recording in which anything has failed may raise as well; the first error counts.
    """
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    if isinstance(first, RuntimeError) and "captur" in str(first):
        return UserError(
            f"a step of {method} cannot be recorded as a CUDA graph "
            f"({str(first).splitlines()[0]}): use --engine eager."
        )
    return first if isinstance(first, Exception) else error


@contextmanager
def recorded_in(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Record what is computed inside; it is not computed yet.

    Python's garbage collector pauses meanwhile: to free another graph would spoil this one. The
    current stream then waits for the recorder's, where a replay's seeds and the like are prepared.
    """
    collects = gc.isenabled()
    gc.disable()
    stream = recorder()
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)


def recorder() -> torch.cuda.Stream:
    """The stream to record on: the run's own, unless it is the default one, which cannot.

    Matrix products keep their scratch memory by stream. Recordings made on one stream would share
    it, and destroy each other's sums when they are played at the same time.
    """
    stream = torch.cuda.current_stream()
    if stream == torch.cuda.default_stream():
        return _beside_default(stream.device)
    return stream


@functools.cache
def _beside_default(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def _capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Tell Adam that its step may be recorded: a fused one counts steps on the device."""
    groups = [group for group in optimizer.param_groups if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


class _Place(NamedTuple):
    """Where a tensor of the state is held, and which tensor it was before a step."""

    holder: Any
    """A dictionary, or an object with attributes."""
    name: str
    tensor: Tensor

    @property
    def current(self) -> Tensor:
        """The tensor that is there now."""
        if isinstance(self.holder, dict):
            tensor: Tensor = self.holder[self.name]
        else:
            tensor = getattr(self.holder, self.name)
        return tensor

    def restore(self) -> None:
        """Copy the tensor that is there now into the one that was, and put that back."""
        self.tensor.copy_(self.current)
        if isinstance(self.holder, dict):
            self.holder[self.name] = self.tensor
        else:
            setattr(self.holder, self.name, self.tensor)


def _tensors(part: object) -> Iterator[_Place]:
    """The tensors among the attributes of a method and of its parts."""
    for name, value in vars(part).items():
        if isinstance(value, Tensor):
            yield _Place(part, name, value)
        elif isinstance(value, dict):
            yield from (_Place(value, n, v) for n, v in value.items() if isinstance(v, Tensor))
        elif isinstance(value, nn.Module):
            for module in value.modules():
                for n, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
                    yield _Place(module, n, buffer)
        elif isinstance(value, Stateful) and not isinstance(value, torch.optim.Optimizer):
            yield from _tensors(value)


def _write_back(state: list[_Place]) -> None:
    """Where a step has put a new tensor in the place of an old one, write it into the old one.

    A graph reads and writes the same places each time it is replayed.
    """
    for place in state:
        if place.current is not place.tensor:
            place.restore()
