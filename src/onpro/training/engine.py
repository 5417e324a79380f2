"""Engines that compute a training step: eager, compiled, or as one CUDA graph."""

import functools
import gc
from collections.abc import Callable, Hashable, Iterable, Iterator
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
    """Return the engine of that name; "auto" is graph on a GPU, eager elsewhere."""
    if name == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if name == "graph" and device.type != "cuda":
        raise UserError(f"--engine graph needs a GPU, and the run is on the {device.type}.")
    return name


def build_engine(name: Engine, method: AnyMethod, step: Step) -> Step:
    """Return a step of a method, `learn` or `rehearse`, computed by the given engine."""
    if name == "graph" and method.is_recordable:
        return GraphEngine(method, step)
    if name == "compile":
        # Forward passes of a step differ in size, and so do steps while the memory fills.
        method.network.encoder.compile(dynamic=True)
    return step


def phase_of(method: AnyMethod) -> Hashable:
    """Return the host-side state a step depends on; equal phases run the same operations."""
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
    """Replays a step as one CUDA graph while the method's phase lasts.

    A step of hundreds of small kernels is limited by the host, which launches them one by one; a
    graph is one launch. The first step of a phase is computed eagerly, the second is captured, and
    from then on the graph is replayed with new images.

    Random numbers and results equal those of eager steps.
    """

    def __init__(self, method: AnyMethod, step: Step) -> None:
        self.method = method
        self._step = step
        self._phase: Hashable = None
        self._captured: CapturedStep | None = None

    def __call__(self, batch: Batch) -> Terms:
        """One training step."""
        phase = phase_of(self.method), batch.images.shape
        if phase != self._phase or (self._captured is not None and self._captured.outdated()):
            self._phase = phase
            self._release()
            return self._step(batch)
        if self._captured is None:
            self._captured = CapturedStep(self.method, self._step, batch)
        return self._captured.replay(batch)

    def _release(self) -> None:
        """Free the memory of an outdated graph, as much as that of an eager step."""
        if self._captured is not None:
            torch.cuda.current_stream().synchronize()
            self._captured = None
            torch.cuda.empty_cache()


class CapturedStep:
    """A step of a method, captured as a CUDA graph."""

    def __init__(self, method: AnyMethod, step: Step, batch: Batch) -> None:
        self.batch = replace(batch, images=batch.images.clone(), labels=batch.labels.clone())
        self.graph = torch.cuda.CUDAGraph()
        for learner in method.learners:
            for generator in learner.random:
                self.graph.register_generator_state(generator)
        self._state = list(_tensors(method))
        try:
            with (
                counting_images() as counter,
                _capturable(learner.optimizer for learner in method.learners),
                capture(self.graph),
            ):
                terms = step(self.batch)
                self.names = list(terms)
                values = [term.detach().float() for term in terms.values()]
                self.values = torch.stack(values) if values else None
                _write_back(self._state)
        except RuntimeError as error:
            raise capture_error(error, method.about.name) from None
        self.images = counter.images

    def outdated(self) -> bool:
        """Return whether tensors that the graph reads have been replaced by others."""
        return any(place.current is not place.tensor for place in self._state)

    def replay(self, batch: Batch) -> Terms:
        """Compute the step on another batch of the same size."""
        self.batch.images.copy_(batch.images)
        self.batch.labels.copy_(batch.labels)
        self.graph.replay()
        count_images(self.images)
        if self.values is None:
            return {}
        return dict(zip(self.names, self.values.clone().unbind(), strict=True))


def capture_error(error: RuntimeError, method: str) -> Exception:
    """Return the exception to raise for an error during capture.

    It is a UserError if the step cannot be captured, otherwise the first error: the end of a failed
    capture raises another one.
    """
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    if isinstance(first, RuntimeError) and "captur" in str(first):
        return UserError(
            f"a step of {method} cannot be captured as a CUDA graph "
            f"({str(first).splitlines()[0]}): use --engine eager."
        )
    return first if isinstance(first, Exception) else error


@contextmanager
def capture(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture the operations inside, without running them.

    Garbage collection is off meanwhile, because freeing another graph invalidates the capture. The
    current stream then waits for the capture stream, on which seeds of replays are prepared.
    """
    collects = gc.isenabled()
    gc.disable()
    stream = capture_stream()
    try:
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            yield
    finally:
        if collects:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)


def capture_stream() -> torch.cuda.Stream:
    """Return the stream to capture on: the current one, or another if it is the default stream.

    cuBLAS has one workspace per stream. Graphs captured on one stream share it, and would corrupt
    each other's results when replayed at the same time.
    """
    stream = torch.cuda.current_stream()
    if stream == torch.cuda.default_stream():
        return _beside_default(stream.device)
    return stream


@functools.cache
def _beside_default(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@contextmanager
def _capturable(optimizers: Iterable[torch.optim.Optimizer]) -> Iterator[None]:
    """Allow Adam's steps to be captured: the fused one counts steps on the device."""
    every = [group for optimizer in optimizers for group in optimizer.param_groups]
    groups = [group for group in every if "capturable" in group]
    for group in groups:
        group["capturable"] = True
    try:
        yield
    finally:
        for group in groups:
            group["capturable"] = False


class _Place(NamedTuple):
    """The place of a tensor of the state, and the tensor in it before a step."""

    holder: Any
    """A dictionary, or an object with attributes."""
    name: str
    tensor: Tensor

    @property
    def current(self) -> Tensor:
        """The tensor in this place now."""
        if isinstance(self.holder, dict):
            tensor: Tensor = self.holder[self.name]
        else:
            tensor = getattr(self.holder, self.name)
        return tensor

    def restore(self) -> None:
        """Copy the current tensor into the original one, and put that back in its place."""
        self.tensor.copy_(self.current)
        if isinstance(self.holder, dict):
            self.holder[self.name] = self.tensor
        else:
            setattr(self.holder, self.name, self.tensor)


def _tensors(part: object) -> Iterator[_Place]:
    """Yield the tensors among the attributes of a method and of its parts."""
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
    """Copy tensors that a step has replaced into the original ones.

    A graph reads and writes the same memory each time it is replayed.
    """
    for place in state:
        if place.current is not place.tensor:
            place.restore()
