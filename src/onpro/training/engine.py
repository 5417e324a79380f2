"""Engines that compute a training step: eager, compiled, or as one CUDA graph."""

import functools
import gc
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.methods.base import Method, Stateful, Terms
from onpro.methods.registry import AnyMethod
from onpro.nn import AUTOCAST, Precision, fused_kernels_work
from onpro.nn.counter import count_images, counting_images
from onpro.streams import Batch

LOG = logging.getLogger(__name__)

Engine = Literal["eager", "compile", "graph"]

Step = Callable[[Batch], Terms]
"""One training step on a batch."""

MAX_GRAPHS = 4
"""Number of graphs an engine keeps."""

RECENT_SIGHTINGS = 8
"""Number of eager steps an engine remembers."""


def pick_engine(name: Literal["auto"] | Engine, device: torch.device) -> Engine:
    """Return the engine of that name; "auto" is graph on a GPU, eager elsewhere."""
    if name == "auto":
        return "graph" if device.type == "cuda" else "eager"
    if name == "graph" and device.type != "cuda":
        raise UserError(f"--engine graph needs a GPU, and the run is on the {device.type}.")
    return name


def fuses(engine: Engine, device: torch.device, precision: Precision) -> bool:
    """Return whether training steps use fused kernels."""
    return engine == "graph" and fused_kernels_work(device, AUTOCAST[precision] or torch.float32)


def build_engine(name: Engine, method: AnyMethod, step: Step, *, lenient: bool = False) -> Step:
    """Return a step of a method, `learn` or `rehearse`, computed by the given engine.

    Args:
        name: The engine.
        method: The method.
        step: Its step.
        lenient: Whether steps that cannot be captured are computed eagerly instead of refused.
    """
    if name == "graph" and method.is_capturable:
        return GraphEngine(method, step, lenient=lenient)
    if name == "compile":
        # Forward passes of a step differ in size, and so do steps while the memory fills.
        method.network.encoder.compile(dynamic=True)
    return step


def phase_of(method: AnyMethod) -> Hashable:
    """Return the host-side state a step depends on, apart from how far a memory is filled.

    Steps of equal phases run the same operations. What a subclass adds may depend on more than the
    `course` it inherits says, so only that of the class itself counts.
    """
    own = "course" in vars(type(method))
    return (
        method.course() if own else Method.course(method),
        method.network.classes,
        method.memory.phase,
        tuple(group["lr"] for group in method.optimizer.param_groups),
    )


class Conditions(NamedTuple):
    """When a step runs the same operations as an earlier one."""

    phase: Hashable
    fills: tuple[range, ...]
    """How far each memory may be filled."""

    def hold(self, phase: Hashable, memories: Sequence[Memory]) -> bool:
        """Return whether they are met."""
        return phase == self.phase and all(
            memory.counters[0] in fills for memory, fills in zip(memories, self.fills, strict=True)
        )


class Sighting(NamedTuple):
    """A step that was computed eagerly."""

    conditions: Conditions
    replays: int
    """Number of replays before it."""


@dataclass(frozen=True)
class Replayable:
    """A captured step, and what the host must know of it."""

    conditions: Conditions
    step: "CapturedStep"
    counted: list[tuple[int, int]]
    """By how much it advances the host's counters of each memory."""


class GraphEngine:
    """Captures steps as CUDA graphs and replays them.

    A step of hundreds of small kernels is limited by the host, which launches them one by one; a
    graph is one launch. The first step of a kind is computed eagerly, the second is captured, and
    from then on the graph is replayed with new images. Steps are of one kind if the host decides
    the same in all of them, see `Conditions`.

    When one kind follows another, the memory of its graph is freed. Kinds that take turns, such as
    the first step of each task and the others, keep their graphs, which share their memory.

    Random numbers and results equal those of eager steps.

    Args:
        method: The method.
        step: Its step.
        lenient: Whether all steps are computed eagerly once one cannot be captured; otherwise that
            is an error.
    """

    def __init__(self, method: AnyMethod, step: Step, *, lenient: bool = False) -> None:
        self.method = method
        self._step = step
        self._lenient, self._captures = lenient, True
        self._memories = [part for part in vars(method).values() if isinstance(part, Memory)]
        self._graphs: list[Replayable] = []
        """The least recently replayed first."""
        self._pool: GraphPool | None = None
        self._sightings: deque[Sighting] = deque(maxlen=RECENT_SIGHTINGS)
        self._replays = 0

    def __call__(self, batch: Batch) -> Terms:
        """One training step."""
        if not self._captures:
            return self._step(batch)
        phase = phase_of(self.method), batch.images.shape
        graph = self._graph_for(phase)
        if graph is None:
            earlier = next((s for s in self._sightings if self._met(s.conditions, phase)), None)
            if earlier is None:
                return self._eager(batch, phase)
            graph = self._capture(batch, phase, earlier)
            if graph is None:
                return self._step(batch)
        self._replays += 1
        terms = graph.step.replay(batch)
        for memory, counted in zip(self._memories, graph.counted, strict=True):
            fill, arrived = memory.counters
            memory.counters = fill + counted[0], arrived + counted[1]
        return terms

    def _met(self, conditions: Conditions, phase: Hashable) -> bool:
        return conditions.hold(phase, self._memories)

    def _graph_for(self, phase: Hashable) -> Replayable | None:
        for graph in self._graphs:
            if self._met(graph.conditions, phase):
                self._graphs.remove(graph)
                if not graph.step.restore_state():
                    return None
                self._graphs.append(graph)
                return graph
        return None

    def _eager(self, batch: Batch, phase: Hashable) -> Terms:
        """Compute a step eagerly, and note under which conditions another would be of its kind."""
        if self._pool is not None and not self._pool.has_room_beside():
            self._release()
        self._watch()
        terms = self._step(batch)
        self._sightings.append(Sighting(self._conditions(phase), self._replays))
        if self._pool is not None:
            self._pool.free_others()
        return terms

    def _capture(self, batch: Batch, phase: Hashable, earlier: Sighting) -> Replayable | None:
        """Capture a step; None: it cannot be captured, and nothing has changed."""
        self._sightings.remove(earlier)
        if self._replays == earlier.replays:  # no other kind came between
            self._release()
        del self._graphs[: max(0, len(self._graphs) - MAX_GRAPHS + 1)]
        if self._pool is None:
            self._pool = GraphPool(self.method.context.device)
        before = [memory.counters for memory in self._memories]
        random = [learner.random.state_dict() for learner in self.method.learners]
        self._watch()
        try:
            with self._pool.growing():
                step = CapturedStep(self.method, self._step, batch, self._pool)
            counted = [
                (memory.counters[0] - fill, memory.counters[1] - arrived)
                for memory, (fill, arrived) in zip(self._memories, before, strict=True)
            ]
        except UserError as error:
            if not self._lenient:
                raise
            LOG.info("%s: training is slower.", error)
            self._captures = False
            self._release()
            torch.clear_autocast_cache()  # it holds weights that were cast, but not computed
            for learner, state in zip(self.method.learners, random, strict=True):
                learner.random.load_state_dict(state)
                learner.optimizer.zero_grad(set_to_none=True)
                # No gradient has been unscaled; the scale itself stays.
                learner.scaler.update(float(learner.loss_scale))
            return None
        finally:  # nothing has been computed yet
            for memory, counters in zip(self._memories, before, strict=True):
                memory.counters = counters
        graph = Replayable(self._conditions(phase), step, counted)
        self._graphs.append(graph)
        return graph

    def _watch(self) -> None:
        for memory in self._memories:
            memory.watch()

    def _conditions(self, phase: Hashable) -> Conditions:
        return Conditions(phase, tuple(memory.replayable_fills for memory in self._memories))

    def _release(self) -> None:
        """Free the memory of all graphs, as much as that of an eager step."""
        if self._pool is not None:
            self._pool.wait()
            self._graphs.clear()
            self._pool.free_others()
            self._pool = None


class GraphPool:
    """The GPU memory that the graphs of an engine share."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.handle = torch.cuda.graph_pool_handle()
        self._bytes = 0

    @contextmanager
    def growing(self) -> Iterator[None]:
        """Measure the memory of a graph captured inside."""
        before = torch.cuda.memory_reserved(self.device)
        yield
        self._bytes += max(0, torch.cuda.memory_reserved(self.device) - before)

    def has_room_beside(self) -> bool:
        """Return whether an eager step finds memory beside the graphs."""
        free, _ = torch.cuda.mem_get_info(self.device)
        return free > 2 * self._bytes

    def wait(self) -> None:
        """Wait until no graph is being replayed."""
        torch.cuda.current_stream(self.device).synchronize()

    def free_others(self) -> None:
        """Free memory that no tensor and no graph uses."""
        with _capturing:  # another thread may be capturing
            torch.cuda.empty_cache()


class CapturedStep:
    """A step of a method, captured as a CUDA graph."""

    def __init__(self, method: AnyMethod, step: Step, batch: Batch, pool: GraphPool) -> None:
        self.method = method
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
                capture(self.graph, pool),
            ):
                terms = step(self.batch)
                self.names = list(terms)
                values = [term.detach().float() for term in terms.values()]
                self.values = torch.stack(values) if values else None
                _put(place for place in self._state if place.is_replaced)
        except RuntimeError as error:
            for place in self._state:
                place.put_back()
            raise capture_error(error, method.about.name) from None
        self.images = counter.images
        self._task, self._addresses = method.progress.task, _addresses(method)

    def restore_state(self) -> bool:
        """Copy tensors that have been replaced since into those that the graph uses.

        Returns:
            Whether that is possible. It is not if a tensor has another shape, or if a task has
            replaced parameters or the optimizer's averages.
        """
        if self.method.progress.task != self._task:
            if _addresses(self.method) != self._addresses:
                return False
            self._task = self.method.progress.task
        replaced = [place for place in self._state if place.is_replaced]
        if not all(place.fits for place in replaced):
            return False
        _put(replaced)
        return True

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


_capturing = threading.Lock()


@contextmanager
def capture(graph: torch.cuda.CUDAGraph, pool: GraphPool | None = None) -> Iterator[None]:
    """Capture the operations inside, without running them; several graphs may share a pool.

    Garbage collection is off meanwhile, because freeing another graph invalidates the capture. The
    current stream then waits for the capture stream, on which seeds of replays are prepared.
    """
    stream = capture_stream()
    with _capturing:  # one thread at a time
        collects = gc.isenabled()
        gc.disable()
        try:
            with torch.cuda.graph(
                graph,
                pool=pool.handle if pool else None,
                stream=stream,
                capture_error_mode="thread_local",
            ):
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

    @property
    def is_replaced(self) -> bool:
        """Whether another tensor has taken the place."""
        return self.current is not self.tensor

    @property
    def fits(self) -> bool:
        """Whether the current tensor can be copied into the original one."""
        old, new = self.tensor, self.current
        return (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device)

    def put_back(self) -> None:
        """Put the original tensor back in its place."""
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
        elif _is_part(value):
            yield from _tensors(value)


def _is_part(value: object) -> bool:
    return isinstance(value, Stateful) and not isinstance(value, torch.optim.Optimizer)


def _addresses(part: object) -> list[int]:
    """Return where the parameters of a method and of its parts are, and their averages."""
    found: list[int] = []
    for value in vars(part).values():
        if isinstance(value, nn.Module):
            found += (parameter.data_ptr() for parameter in value.parameters())
        elif isinstance(value, torch.optim.Optimizer):
            states = (tensor for state in value.state.values() for tensor in state.values())
            found += (tensor.data_ptr() for tensor in states if isinstance(tensor, Tensor))
        elif _is_part(value):
            found += _addresses(value)
    return found


def _put(replaced: Iterable[_Place]) -> None:
    """Copy the current tensors into the original ones, and put these back in their places.

    A graph reads and writes the same memory each time it is replayed. All values are copied before
    the first is written: a tensor may have moved from one place to another.
    """
    for place, value in [(place, place.current.clone()) for place in replaced]:
        place.tensor.copy_(value)
        place.put_back()
