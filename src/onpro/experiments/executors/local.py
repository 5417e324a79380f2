"""Runs on this machine: each in a process of its own on the CPU, side by side on a GPU."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from typing import Literal

import torch

from onpro.data.workers import cores
from onpro.experiments.executors.base import JobResult, RunRequest
from onpro.experiments.executors.worker import attempt, noted_signals
from onpro.runs.runner import SharedImages
from onpro.runs.side_by_side import MOST_AT_ONCE, Start, train_side_by_side
from onpro.runs.threads import THREADS
from onpro.training import pick_device

LOOK_FOR_REQUESTS = 0.1
"""Seconds between two looks for a request while there is no run to train."""


END_WITHIN = 10.0
"""Seconds that processes get to end when the executor is closed."""


class Local:
    """Worker processes of this machine.

    On the CPU each run has its own, forked from a server that has imported torch and onpro. A GPU
    has one that trains several runs side by side: they share its CUDA context, compiled kernels
    and images. A process that dies takes its runs along; each is resumed in a process of its own.

    Args:
        workers: Number of runs at once; None is as many as there are cores for.
        threads: Cores that a run takes; None is one.
        gpus: Names of the GPUs as `CUDA_VISIBLE_DEVICES` takes them; none is the CPU.
        side_by_side: Whether runs share a process; None: on GPUs.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        threads: int | None = None,
        gpus: Sequence[str] = (),
        side_by_side: bool | None = None,
    ) -> None:
        self._workers = workers or max(1, cores() // (threads or THREADS))
        self._gpus: list[str | None] = list(gpus) or [None]
        self._side_by_side = bool(gpus) if side_by_side is None else side_by_side
        self._threads = max(1, min(cores(), torch.get_num_threads()) // len(self._gpus))
        self._processes: list[WorkerProcess] = []

    def device(self) -> Literal["cpu", "cuda"]:
        """Return the kind of device of the processes."""
        return "cpu" if None in self._gpus else "cuda"

    def slots(self) -> int:
        """Return the number of workers."""
        return self._workers

    def start(self, request: RunRequest, *, alone: bool = False) -> "LocalJob":
        """Start a run on the GPU that has the fewest."""
        self._processes = [process for process in self._processes if not process.ending()]
        busy = [process.gpu for process in self._processes for _ in process.unfinished()]
        gpu = min(self._gpus, key=busy.count)
        kind = gpu, request.config.deterministic
        fitting = [p for p in self._processes if (p.gpu, p.deterministic) == kind and not p.closed]
        alone = alone or not self._side_by_side
        if alone or not fitting:
            fitting = [WorkerProcess(*kind, threads=self._threads)]
            self._processes += fitting
        job = fitting[0].take(request)
        if alone:
            fitting[0].close()
        return job

    def close(self) -> None:
        """Let the processes end after their last runs, and wait for a while until they have."""
        for process in self._processes:
            process.close()
        for process in self._processes:
            process.join(END_WITHIN)


class WorkerProcess:
    """A process that trains runs side by side, seen from the command."""

    def __init__(self, gpu: str | None, deterministic: bool, *, threads: int) -> None:
        self.gpu, self.deterministic = gpu, deterministic
        self.closed = False
        self._numbers = count()
        self._results: dict[int, JobResult | None] = {}
        self._failure = ""
        # CUDA does not work in a forked process.
        context = fork_server() if gpu is None else multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = gpu, deterministic, threads, theirs
        self._process: BaseProcess = context.Process(target=_serve, args=arguments)
        try:
            if gpu is None:
                self._process.start()  # waits for the server, which imports
            else:
                with _deaf_to_ctrl_c():
                    self._process.start()
        except (EOFError, OSError) as error:  # the fork server was killed: the next has a new one
            reason = str(error) or type(error).__name__
            self._failure = f"its process could not be started ({reason})."
        finally:
            theirs.close()  # so that the end of the process is the end of the pipe

    def take(self, request: RunRequest) -> "LocalJob":
        """Queue a run."""
        number = next(self._numbers)
        self._results[number] = None
        with suppress(OSError):  # it has died: the result will say so
            self._pipe.send((number, request))
        return LocalJob(self, number)

    def unfinished(self) -> list[int]:
        """Return the numbers of the runs under way."""
        return [number for number in self._results if self.result(number) is None]

    def ending(self) -> str:
        """Return how the process ended, "" while it runs."""
        if self._failure:
            return self._failure
        status = self._process.exitcode
        return "" if status is None else f"its process {how_it_ended(status)}."

    def result(self, number: int) -> JobResult | None:
        """Return how a run ended, None while it is trained."""
        ending = self.ending()  # before the look at what it has sent
        with suppress(EOFError, OSError):
            while self._pipe.poll():
                sent, result = self._pipe.recv()
                self._results[sent] = result
        if ending:
            self._pipe.close()
            self._results[number] = self._results[number] or JobResult("died", ending)
        return self._results[number]

    def close(self) -> None:
        """Let the process end after its last run."""
        if not self.closed:
            self.closed = True
            with suppress(OSError):
                self._pipe.send(None)

    def join(self, seconds: float | None = None) -> None:
        """Wait until the process has ended, or for some seconds."""
        if not self._failure:
            self._process.join(seconds)

    def stop(self) -> None:
        """Ask all its runs to save a checkpoint and end."""
        if not self._failure:
            self._process.terminate()

    def kill(self) -> None:
        """End it at once, and wait until it has ended."""
        if not self._failure:
            self._process.kill()
            self.join()


@dataclass(frozen=True)
class LocalJob:
    """One of the runs of a process."""

    process: WorkerProcess
    number: int

    def result(self) -> JobResult | None:
        """Return how it ended, None while it runs."""
        return self.process.result(self.number)

    def stop(self) -> None:
        """Ask it, and the others of its process, to save a checkpoint and end."""
        self.process.stop()

    def kill(self) -> None:
        """End it, and the others of its process, at once."""
        self.process.kill()


def _serve(gpu: str | None, deterministic: bool, threads: int, pipe: Connection) -> None:
    """Train the runs that come through the pipe until None comes, and send their results."""
    _leave_signals_to_command()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    torch.set_num_threads(threads)
    device = pick_device("cpu" if gpu is None else "cuda")
    images = SharedImages()
    under_way: set[int] = set()
    broken = False

    def train(number: int, request: RunRequest) -> Generator[None, int | None, None]:
        nonlocal broken
        result = yield from attempt(request, stop=stop, images=images)
        under_way.discard(number)
        broken = broken or (result.kind in ("died", "defect") and not _computes(device))
        with suppress(OSError):  # the command was killed
            pipe.send((number, result))

    def starts() -> Iterator[Start[None] | None]:
        while stop() is None and not broken:
            try:
                come = pipe.poll(0 if under_way else LOOK_FOR_REQUESTS)
                received = pipe.recv() if come else None
            except (EOFError, OSError):  # the command was killed: what is under way goes on
                return
            if received is not None:
                under_way.add(received[0])
            elif come:
                return
            yield received and partial(train, *received)

    with noted_signals() as stop:
        train_side_by_side(starts(), device, at_once=MOST_AT_ONCE, deterministic=deterministic)


def _computes(device: torch.device) -> bool:
    """Return whether a device works; after some errors a GPU is lost to the process."""
    try:
        return torch.ones(1, device=device).item() == 1
    except RuntimeError:
        return False


def fork_server() -> ForkServerContext | SpawnContext:
    """Return a context whose processes start with onpro and torch imported, where there is one."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["onpro.experiments.executors.preload"])
    with _deaf_to_ctrl_c():
        forkserver.ensure_running()
    return context


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Have processes that are started here not see Ctrl-C, not even while they import."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _leave_signals_to_command() -> None:
    """Ignore Ctrl-C and the end of the terminal, which the command handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _end_with_parent() -> None:
    """Wait until the command has ended; then save what is under way and end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def how_it_ended(status: int) -> str:
    """Describe the exit status of a process."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"
