"""Runs on the GPUs of this machine: those of one GPU take turns in one process."""

import multiprocessing
import os
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

import torch

from onpro.experiments.executors.local import (
    cores,
    end_with_parent,
    fork_server,
    how_it_ended,
    leave_signals_to_command,
)
from onpro.experiments.executors.worker import (
    Outcome,
    attempt,
    listening,
    overheard,
    stop_requests,
    with_what_was_said,
)
from onpro.runs.config import RunConfig
from onpro.runs.runner import SharedImages
from onpro.runs.side_by_side import MOST_AT_ONCE, Start, train_side_by_side
from onpro.training import pick_device

LOOK_FOR_ORDERS = 0.1
"""Seconds between two looks for a new run while there is none to train."""


@dataclass(frozen=True)
class Order:
    """A run to be trained."""

    number: int
    config: RunConfig
    out: Path


class Crews:
    """A process for each GPU, which trains several runs side by side.

    They share its CUDA, what is compiled, and the images, and none waits until another process has
    started. A process that dies takes its runs along; each goes on from its checkpoint, in a
    process of its own.

    Args:
        gpus: names of the GPUs, as `CUDA_VISIBLE_DEVICES` takes them; None is the CPU.
        workers: how many runs at once, on all of them together.
    """

    def __init__(self, gpus: Sequence[str | None], workers: int) -> None:
        self._gpus = list(gpus)
        self._workers = workers
        self._threads = min(cores(), torch.get_num_threads())
        self._crews: list[Crew] = []

    def device(self) -> Literal["cpu", "cuda"]:
        """What the processes are for."""
        return "cpu" if None in self._gpus else "cuda"

    def slots(self) -> int:
        """As many as were asked for."""
        return self._workers

    def start(self, config: RunConfig, out: Path, *, alone: bool = False) -> "CrewJob":
        """Hand a run to the GPU that has the fewest."""
        self._crews = [crew for crew in self._crews if crew.alive()]
        busy = [crew.gpu for crew in self._crews for _ in crew.members()]
        gpu = min(self._gpus, key=busy.count)
        crews = [crew for crew in self._crews if crew.gpu == gpu and not crew.closed]
        if alone or not crews:
            crews = [Crew(gpu, threads=max(1, self._threads // len(self._gpus)))]
            self._crews += crews
        job = crews[0].take(config, out)
        if alone:
            crews[0].close()
        return job

    def close(self) -> None:
        """Let the processes end when their runs have."""
        for crew in self._crews:
            crew.close()


class Crew:
    """A process that trains runs side by side, as seen from outside."""

    def __init__(self, gpu: str | None, *, threads: int) -> None:
        self.gpu = gpu
        self.closed = False
        self._numbers = count()
        self._outcomes: dict[int, Outcome | None] = {}
        # A GPU needs a process with a CUDA of its own.
        context = fork_server() if gpu is None else multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process: BaseProcess = context.Process(target=_child, args=(gpu, threads, theirs))
        self._process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    def take(self, config: RunConfig, out: Path) -> "CrewJob":
        """Train one run more."""
        number = next(self._numbers)
        self._outcomes[number] = None
        with suppress(OSError):  # it has died: the outcome will say so
            self._pipe.send(Order(number, config, out))
        return CrewJob(self, number)

    def members(self) -> list[int]:
        """The runs under way."""
        return [number for number in self._outcomes if self.outcome(number) is None]

    def alive(self) -> bool:
        """Whether the process goes on."""
        return self._process.exitcode is None

    def outcome(self, number: int) -> Outcome | None:
        """How a run has ended; None as long as it goes on."""
        status = self._process.exitcode  # before the look at what it has sent
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                sent, outcome = self._pipe.recv()
                self._outcomes[sent] = outcome
        if self._outcomes[number] is None and status is not None:
            self._outcomes[number] = Outcome("died", f"its process {how_it_ended(status)}.")
        return self._outcomes[number]

    def close(self) -> None:
        """No more runs come; the process ends with its last one."""
        if not self.closed:
            self.closed = True
            with suppress(OSError):
                self._pipe.send(None)

    def stop(self) -> None:
        """Have all its runs save their states and end."""
        self._process.terminate()

    def kill(self) -> None:
        """End it at once, and wait until nothing is left."""
        self._process.kill()
        self._process.join()


@dataclass(frozen=True)
class CrewJob:
    """One of the runs of a crew."""

    crew: Crew
    number: int

    def outcome(self) -> Outcome | None:
        """How it has ended; None as long as it goes on."""
        return self.crew.outcome(self.number)

    def stop(self) -> None:
        """Ask it, and with it the others of its crew, to save its state and end."""
        self.crew.stop()

    def kill(self) -> None:
        """End it, and with it the others of its crew, at once."""
        self.crew.kill()


def _child(gpu: str | None, threads: int, pipe: Connection) -> None:
    leave_signals_to_command()
    threading.Thread(target=end_with_parent, daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(threads)
    device = pick_device("cpu" if gpu is None else "cuda")
    images = SharedImages()
    under_way: set[int] = set()
    broken = False

    def train(order: Order) -> Generator[None, int | None, None]:
        nonlocal broken
        turns = attempt(order.config, order.out, stop=stop, images=images)
        outcome, words = yield from overheard(turns, said)
        under_way.discard(order.number)
        broken = broken or (outcome.kind in ("died", "defect") and not _computes(device))
        outcome = with_what_was_said(outcome, words, order.config, order.out)
        with suppress(OSError):  # the command has been killed: nobody wants to know
            pipe.send((order.number, outcome))

    def orders() -> Iterator[Start[None] | None]:
        while stop() is None and not broken:
            try:
                come = pipe.poll(0 if under_way else LOOK_FOR_ORDERS)
                order = pipe.recv() if come else None
            except (EOFError, OSError):  # the command has been killed: what is under way goes on
                return
            if order is not None:
                under_way.add(order.number)
            elif come:
                return
            yield order and partial(train, order)

    with listening() as said, stop_requests() as stop:
        train_side_by_side(orders(), device, at_once=MOST_AT_ONCE)


def _computes(device: torch.device) -> bool:
    """Whether a device still does; after some errors a GPU does nothing more for a process."""
    try:
        return torch.ones(1, device=device).item() == 1
    except RuntimeError:
        return False
