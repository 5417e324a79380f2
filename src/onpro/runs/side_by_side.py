"""Several runs in one process, which share a GPU step by step."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Generic

import torch

from onpro.runs.runner import End
from onpro.training.device import deterministic_mode

ROOM = 7 * 2**30
"""Bytes of a GPU's memory that a run on images of 32×32 is given, where nobody says how many runs
share it: OnPro takes 6.2 GiB; twelve runs of six other methods took 24 together."""


MOST_AT_ONCE = 32
"""Torch has so many streams for a GPU; runs that share one wait for each other."""


def room_for_runs(free: int, side: int) -> int:
    """How many runs share a GPU where nobody says: as many as fit.

    Args:
        free: bytes of its memory.
        side: of the images, in pixels; larger ones need more room.
    """
    return max(1, free // (ROOM * max(32, side) ** 2 // 32**2))


Start = Callable[[], Generator[None, int | None, End]]
"""Begins a run, which hands over after each step and is told how many runs there are."""


@dataclass
class _Lane(Generic[End]):
    """A run on its way, and the queue in which the GPU does its work."""

    number: int
    running: Generator[None, int | None, End]
    queue: torch.cuda.Stream | None
    begun: bool = False

    def step(self, runs: int) -> None:
        """Take a step, one of so many runs; a generator can be told only after its first."""
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
    """Train runs, some of them at once, and give their results in order.

    Each takes a step in turn. On a GPU each has a stream of its own, so that the small operations
    of one run fill the gaps that another leaves; a run computes what it would compute alone. A
    run that fails does not disturb the others, and its error is raised when they are over. An
    interruption ends all of them: each that was asked to stop has saved itself by then.

    Args:
        starts: what starts each run, asked for when there is room; None: there is none just now.
        device: where they compute.
        at_once: how many share the device, at most `MOST_AT_ONCE`; the next starts when one is
            over.
        deterministic: whether a GPU has to compute the same bits each time.
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
            if interrupted:  # and everybody has had a step to hear of it
                for lane in lanes:
                    lane.running.close()
                lanes.clear()
    if errors:
        raise errors[0]
    return [done[number] for number in sorted(done)]
