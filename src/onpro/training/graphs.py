"""Steps of a method as CUDA graphs: how they are captured, and replayed."""

import functools
import gc
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.methods.base import Terms
from onpro.methods.registry import AnyMethod
from onpro.methods.state import Stateful
from onpro.nn.counter import count_images, counting_images
from onpro.streams import Batch

Step = Callable[[Batch], Terms]
"""One training step on a batch."""


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
