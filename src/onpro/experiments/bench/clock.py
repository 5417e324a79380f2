"""Time and GPU memory of steps."""

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
    """Steps to be timed, and where the device does their work."""

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
    """Peak GPU memory in bytes of one of several learners that share a process.

    Each has a queue of its own, so that none takes what another has given back. What the others
    hold is left out.
    """

    device: torch.device
    allocated: int = 0
    reserved: int = 0
    _held: tuple[int, int] = (0, 0)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Find the peak of what is done inside, from now on the only one."""
        if self.device.type != "cuda":
            yield
            return
        before = self._now()
        torch.cuda.reset_peak_memory_stats(self.device)
        yield
        others = [b - held for b, held in zip(before, self._held, strict=True)]
        self.allocated = torch.cuda.max_memory_allocated(self.device) - others[0]
        self.reserved = torch.cuda.max_memory_reserved(self.device) - others[1]
        after = self._now()
        self._held = after[0] - others[0], after[1] - others[1]

    def _now(self) -> tuple[int, int]:
        return torch.cuda.memory_allocated(self.device), torch.cuda.memory_reserved(self.device)
