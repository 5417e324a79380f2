"""Runs on this machine, each in a process of its own."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

import torch

from onpro.experiments.config import RunConfig
from onpro.experiments.executors.execute import Job
from onpro.experiments.executors.worker import Outcome, work


class Local:
    """Some processes at once.

    Whatever ends one of them ends no other. On GPUs each is a new interpreter with a CUDA of its
    own; on a CPU it is forked from a server that has only imported what a run needs, which saves
    the seconds that takes.

    Args:
        workers: how many runs at once; default: as many as there are cores.
        gpus: names of the GPUs to spread the runs over, as `CUDA_VISIBLE_DEVICES` takes them.
    """

    def __init__(self, workers: int | None = None, gpus: Sequence[str] = ()) -> None:
        self._workers = workers or cores()
        self._threads = max(1, min(cores(), torch.get_num_threads()) // self._workers)
        self._gpus = list(gpus)
        self._jobs: list[LocalJob] = []
        self._context = _context(clean=bool(gpus))

    def device(self) -> Literal["cpu", "cuda"]:
        """On the GPUs, if there are any to use."""
        return "cuda" if self._gpus else "cpu"

    def slots(self) -> int:
        """As many as there are workers."""
        return self._workers

    def start(self, config: RunConfig, out: Path) -> Job:
        """Start a process, on the GPU that has the fewest."""
        self._jobs = [job for job in self._jobs if job.outcome() is None]
        busy = [job.gpu for job in self._jobs]
        gpu = min(self._gpus, key=busy.count, default=None)
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_child, args=(config, out, self._threads, gpu, sender)
        )
        process.start()
        sender.close()  # so that the end of the process is the end of the pipe
        job = LocalJob(process, receiver, gpu)
        self._jobs.append(job)
        return job

    def close(self) -> None:
        """Nothing is left to let go of."""


class LocalJob:
    """A process and what it has to say at its end."""

    def __init__(self, process: BaseProcess, receiver: Connection, gpu: str | None) -> None:
        self.gpu = gpu
        self._process = process
        self._receiver = receiver
        self._outcome: Outcome | None = None

    def outcome(self) -> Outcome | None:
        """What the process has sent, or how it died."""
        if self._outcome is None and self._process.exitcode is not None:
            self._outcome = self._read(self._process.exitcode)
        return self._outcome

    def _read(self, status: int) -> Outcome:
        with self._receiver:
            try:
                outcome = self._receiver.recv() if self._receiver.poll() else None
            except (EOFError, OSError):
                outcome = None
        if isinstance(outcome, Outcome):
            return outcome
        how = f"was killed by {_name(-status)}" if status < 0 else f"ended with status {status}"
        return Outcome("died", f"its process {how}.")

    def stop(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL, and wait until nothing is left."""
        self._process.kill()
        self._process.join()


def cores() -> int:
    """How many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux can tell
        return os.cpu_count() or 1


PRELOADED = [work.__module__, "torch._dynamo"]
"""What takes seconds to import: the package, and what an optimizer's first step imports."""


def _context(*, clean: bool) -> ForkServerContext | SpawnContext:
    if clean or "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _child(config: RunConfig, out: Path, threads: int, gpu: str | None, sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the command, which tells us
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    outcome = work(config, out, threads=threads)
    with suppress(BrokenPipeError):  # the command has been killed: nobody wants to know
        sender.send(outcome)


def _end_with_parent() -> None:
    """Save the run and end when the command has been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
