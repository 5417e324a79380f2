"""Time and GPU memory of steps."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import torch


class Spread(NamedTuple):
    """Milliseconds of a step in several blocks of steps."""

    median: float
    low: float
    high: float


class Timed(NamedTuple):
    """A step to time, and the context in which the device computes it."""

    step: Callable[[], None]
    here: Callable[[], AbstractContextManager[object]]


def alternately(
    timed: Sequence[Timed], *, steps: int, repeats: int, device: torch.device
) -> list[Spread]:
    """Time blocks of steps, one of each in turn, so that a device that slows down slows all."""
    taken: list[list[float]] = [[] for _ in timed]
    for _ in range(repeats):
        for times, (step, here) in zip(taken, timed, strict=True):
            with here():
                times.append(milliseconds(step, steps, device))
    return [Spread(median(times), min(times), max(times)) for times in taken]


def milliseconds(step: Callable[[], object], steps: int, device: torch.device) -> float:
    """Time of a step, mean over a block between two waits for the device."""
    wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait(device)
    return 1000 * (time.perf_counter() - began) / steps


def wait(device: torch.device) -> None:
    """Wait until a GPU has done all it was asked for."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass
class Footprint:
    """Peak GPU memory in bytes of one of several learners that share a process."""

    device: torch.device
    allocated: int = 0
    """Of this learner: what others hold is left out."""
    reserved: int = 0
    """By the whole process since then: it describes a learner only if that is alone."""
    _held: int = 0
    _before: int = 0

    def __post_init__(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            self._before = torch.cuda.memory_reserved(self.device)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Find the peaks of what is done inside."""
        if self.device.type != "cuda":
            yield
            return
        cuda = torch.cuda
        gc.collect()
        cuda.empty_cache()
        others = cuda.memory_allocated(self.device) - self._held
        cuda.reset_peak_memory_stats(self.device)
        yield
        self.allocated = cuda.max_memory_allocated(self.device) - others
        self.reserved = cuda.max_memory_reserved(self.device) - self._before
        self._held = cuda.memory_allocated(self.device) - others
