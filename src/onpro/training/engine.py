"""How a training step is computed: operation by operation, compiled, or as one CUDA graph."""

import functools
import gc
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.methods.base import Learn, Stateful
from onpro.methods.registry import AnyMethod
from onpro.streams import Batch

Engine = Literal["eager", "compile", "graph"]


def pick_engine(name: Literal["auto"] | Engine, device: torch.device) -> Engine:
    """The engine of that name; auto: graphs on a GPU, operation by operation elsewhere."""
    if name == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if name == "graph" and device.type != "cuda":
        raise UserError(f"--engine graph needs a GPU, and the run is on the {device.type}.")
    return name


def build_engine(name: Engine, method: AnyMethod) -> Learn:
    """What computes the steps of a method in the place of `method.learn`."""
    if name == "graph":
        method.engine = GraphEngine  # for whatever it repeats besides
        return GraphEngine(method, method.learn)
    if name == "compile":
        # Forwards of a step differ in size, and so do steps while the memory fills.
        method.network.encoder.compile(dynamic=True)
    return method.learn


class GraphEngine:
    """Repeats a step as one CUDA graph, as long as the method's phase lasts.

    A step of hundreds of small operations waits for the host, which issues them one by one. A
    graph is issued at once. The first step of a phase is computed operation by operation, the
    second is recorded, and from then on the recording is played with other images.

    Random numbers are those of the step itself, and so are the results.
    """

    def __init__(self, method: AnyMethod, step: Learn) -> None:
        self.method = method
        self._step = step
        self._phase: Hashable = None
        self._recording: Recording | None = None

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """One training step."""
        phase = self.method.phase(), batch.images.shape
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

    def __init__(self, method: AnyMethod, step: Learn, batch: Batch) -> None:
        self.method = method
        self.batch = replace(batch, images=batch.images.clone(), labels=batch.labels.clone())
        self.graph = torch.cuda.CUDAGraph()
        for generator in method.random:
            self.graph.register_generator_state(generator)
        self._state = list(_tensors(method))
        before = _counts(method)
        try:
            with _capturable(method.optimizer), recorded_in(self.graph):
                terms = step(self.batch)
                self.names = list(terms)
                values = [term.detach().float() for term in terms.values()]
                self.values = torch.stack(values) if values else None
                _write_back(self._state)
        except RuntimeError as error:
            raise explained(error, method.about.name) from None
        self.added = _Counts(*(b - a for a, b in zip(before, _counts(method), strict=True)))
        _set_counts(method, before)  # nothing has been computed yet

    def outdated(self) -> bool:
        """Whether somebody has put other tensors in the place of those the graph reads."""
        return any(place.holder[place.name] is not place.tensor for place in self._state)

    def play(self, batch: Batch) -> dict[str, Tensor]:
        """The step, with another batch of the same size."""
        self.batch.images.copy_(batch.images)
        self.batch.labels.copy_(batch.labels)
        self.graph.replay()
        now = _counts(self.method)
        _set_counts(self.method, _Counts(*(a + b for a, b in zip(now, self.added, strict=True))))
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


class _Counts(NamedTuple):
    """What a step counts on the host, where a phase does not notice."""

    images: int
    seen: int


def _counts(method: AnyMethod) -> _Counts:
    memory = getattr(method, "memory", None)
    return _Counts(method.progress.images, memory.seen if memory is not None else 0)


def _set_counts(method: AnyMethod, counts: _Counts) -> None:
    method.progress.images = counts.images
    if hasattr(method, "memory"):
        method.memory.seen = counts.seen


class _Place(NamedTuple):
    """Where a tensor of the state is held, and which tensor it was before a step."""

    holder: dict[str, Any]
    name: str
    tensor: Tensor


def _tensors(part: object) -> Iterator[_Place]:
    """The tensors among the attributes of a method and of its parts."""
    for name, value in vars(part).items():
        if isinstance(value, Tensor):
            yield _Place(vars(part), name, value)
        elif isinstance(value, dict):
            yield from (_Place(value, n, v) for n, v in value.items() if isinstance(v, Tensor))
        elif isinstance(value, nn.Module):
            for module in value.modules():
                buffers = module._buffers
                yield from (_Place(buffers, n, v) for n, v in buffers.items() if v is not None)
        elif isinstance(value, Stateful) and not isinstance(value, torch.optim.Optimizer):
            yield from _tensors(value)


def _write_back(state: list[_Place]) -> None:
    """Where a step put a new tensor in the place of an old one, write it into the old one.

    A graph reads and writes the same places each time it is played.
    """
    for holder, name, tensor in state:
        if holder[name] is not tensor:
            tensor.copy_(holder[name])
            holder[name] = tensor
