"""Several runs in one process, which share a GPU step by step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from onpro.experiments.run import Finished, Running
from onpro.training.device import repeatable

ROOM = 8 * 2**30
"""Bytes of a GPU's memory that a run is given, where nobody says how many runs share it: OnPro on
images of 32×32 needs a bit less."""


def room_for_runs(device: torch.device) -> int:
    """How many runs go side by side where nobody says: one on a CPU, which one run fills."""
    if device.type != "cuda":
        return 1
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, free // ROOM)


@dataclass(frozen=True)
class _Lane:
    """A run on its way, and the queue in which the GPU does its work."""

    number: int
    running: Running
    queue: torch.cuda.Stream | None


def side_by_side(
    starts: Iterable[Callable[[], Running]],
    device: torch.device,
    *,
    at_once: int,
    deterministic: bool = False,
) -> list[Finished]:
    """Train runs, some of them at once, and give their results in order.

    Each takes a step in turn. On a GPU each has a stream of its own, so that the small operations
    of one run fill the gaps that another leaves; a run computes what it would compute alone. A
    run that fails does not disturb the others, and its error is raised when they are over. An
    interruption ends all of them: each that was asked to stop has saved itself by then.

    Args:
        starts: what starts each run, called when its turn comes.
        device: where they compute.
        at_once: how many share the device; the next starts when one is over.
        deterministic: whether a GPU has to compute the same bits each time.
    """
    waiting = list(enumerate(starts))[::-1]
    lanes: list[_Lane] = []
    done: dict[int, Finished] = {}
    errors: list[BaseException] = []
    with repeatable(device, deterministic):
        while waiting or lanes:
            interrupted = any(isinstance(error, KeyboardInterrupt) for error in errors)
            while waiting and len(lanes) < at_once and not errors:
                number, start = waiting.pop()
                queue = torch.cuda.Stream(device) if device.type == "cuda" else None
                try:
                    with torch.cuda.stream(queue):
                        lanes.append(_Lane(number, start(), queue))
                except Exception as error:
                    errors.append(error)
            if errors:
                waiting.clear()
            for lane in list(lanes):
                try:
                    with torch.cuda.stream(lane.queue):
                        next(lane.running)
                    continue
                except StopIteration as end:
                    done[lane.number] = end.value
                except (Exception, KeyboardInterrupt) as error:
                    errors.append(error)
                lanes.remove(lane)
            if interrupted:  # and everybody has had a step to hear of it
                for lane in lanes:
                    lane.running.close()
                lanes.clear()
    if errors:
        raise errors[0]
    return [done[number] for number in sorted(done)]
