"""Train several runs in one process, interleaved step by step on a shared GPU."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Generic

import torch

from onpro.runs.runner import End
from onpro.training.device import deterministic_mode

ROOM = 7 * 2**30
"""GPU memory in bytes reserved for a run on 32×32 images by default: OnPro takes 6.2 GiB, twelve
runs of six other methods took 24 GiB together."""

MOST_AT_ONCE = 32
"""Number of CUDA streams in torch's pool; runs that share a stream wait for each other."""


def room_for_runs(free: int, side: int) -> int:
    """Return the default number of runs that share a GPU: as many as fit.

    Args:
        free: Free GPU memory in bytes.
        side: Side of the images in pixels; larger images need more memory.
    """
    return max(1, free // (ROOM * max(32, side) ** 2 // 32**2))


Start = Callable[[], Generator[None, int | None, End]]
"""Starts a run: a generator that yields after each step and is sent the number of runs."""


@dataclass
class _Lane(Generic[End]):
    """A run in progress and its CUDA stream."""

    number: int
    running: Generator[None, int | None, End]
    queue: torch.cuda.Stream | None
    begun: bool = False

    def step(self, runs: int) -> None:
        """Take a step; the number of runs can only be sent after the first."""
        with torch.cuda.stream(self.queue):
            self.running.send(runs if self.begun else None)
        self.begun = True


def train_side_by_side(
    starts: Iterable[Start[End] | None],
    device: torch.device,
    *,
    at_once: int,
    deterministic: bool = False,
) -> list[End]:
    """Train several runs concurrently and return their results in order.

    The runs take steps in turn. On a GPU each has its own CUDA stream, so that the small kernels of
    several runs overlap; results are those of separate runs. If a run fails, no more are started,
    the others finish, and its error is raised at the end. A KeyboardInterrupt ends all runs, after
    one more step in which they can save a checkpoint.

    Args:
        starts: Starts the runs; advanced when there is room for another. None means that no run is
            available at the moment.
        device: Device of all runs.
        at_once: Number of runs that share the device, at most `MOST_AT_ONCE`.
        deterministic: Whether to use deterministic algorithms on a GPU.
    """
    waiting = enumerate(starts)
    more = True
    at_once = min(at_once, MOST_AT_ONCE)
    on_gpu = device.type == "cuda"
    queues = [torch.cuda.Stream(device) if on_gpu else None for _ in range(at_once)]
    lanes: list[_Lane[End]] = []
    done: dict[int, End] = {}
    errors: list[BaseException] = []
    with deterministic_mode(device, deterministic):
        while lanes or (more and not errors):
            interrupted = any(isinstance(error, KeyboardInterrupt) for error in errors)
            while more and len(lanes) < at_once and not errors:
                following = next(waiting, None)
                if following is None:
                    more = False
                    break
                number, start = following
                if start is None:
                    break
                queue = queues.pop()
                try:
                    with torch.cuda.stream(queue):
                        lanes.append(_Lane(number, start(), queue))
                except Exception as error:
                    errors.append(error)
                    queues.append(queue)
            runs = len(lanes)
            for lane in list(lanes):
                try:
                    lane.step(runs)
                    continue
                except StopIteration as end:
                    done[lane.number] = end.value
                except (Exception, KeyboardInterrupt) as error:
                    errors.append(error)
                lanes.remove(lane)
                queues.append(lane.queue)
            if interrupted:  # and each run has had a step to save a checkpoint
                for lane in lanes:
                    lane.running.close()
                lanes.clear()
    if errors:
        raise errors[0]
    return [done[number] for number in sorted(done)]
