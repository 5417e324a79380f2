"""Runs on the cores of this machine, each in a process of its own."""

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Literal

from onpro.experiments.executors.execute import Job
from onpro.experiments.executors.worker import Outcome, work
from onpro.runs.config import RunConfig
from onpro.runs.threads import THREADS


class Local:
    """Some processes at once.

    Whatever ends one of them ends no other. Each is forked from a server that has only imported
    what a run needs, which saves the seconds that takes.

    Args:
        workers: how many runs at once; default: as many as there are cores for.
        threads: cores that a run takes; default: one, or as many as it began with.
    """

    def __init__(self, workers: int | None = None, *, threads: int | None = None) -> None:
        self._workers = workers or max(1, cores() // (threads or THREADS))
        self._threads = threads
        self._context = fork_server()

    def device(self) -> Literal["cpu", "cuda"]:
        """On the CPU."""
        return "cpu"

    def slots(self) -> int:
        """As many as there are workers."""
        return self._workers

    def start(self, config: RunConfig, out: Path, *, alone: bool = True) -> Job:
        """Start a process, in which a run is always alone.

        Where none can be started, since the server was killed say, the run counts as one whose
        process has died. The next attempt has a new server.
        """
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_child, args=(config, out, self._threads, sender))
        try:
            process.start()
        except (EOFError, OSError) as error:
            receiver.close()
            return NotStarted(
                f"its process could not be started ({error or type(error).__name__})."
            )
        finally:
            sender.close()  # so that the end of the process is the end of the pipe
        return LocalJob(process, receiver)

    def close(self) -> None:
        """Nothing is left to let go of."""


@dataclass(frozen=True)
class NotStarted:
    """A process that there never was."""

    reason: str

    def outcome(self) -> Outcome:
        """It has died."""
        return Outcome("died", self.reason)

    def stop(self) -> None:
        """Nothing goes on."""

    def kill(self) -> None:
        """Nothing goes on."""


class LocalJob:
    """A process and what it has to say at its end."""

    def __init__(self, process: BaseProcess, receiver: Connection) -> None:
        self._process = process
        self._receiver = receiver
        self._sent: Outcome | None = None

    def outcome(self) -> Outcome | None:
        """What the process has sent, or how it died; None as long as it goes on.

        What it sends is read at once: a process that has more to say than its pipe holds would
        otherwise never end.
        """
        status = self._process.exitcode  # before the look at what it has sent
        with suppress(EOFError, OSError):
            if self._sent is None and self._receiver.poll():
                self._sent = self._receiver.recv()
        if status is None:
            return None
        self._receiver.close()
        return self._sent or Outcome("died", f"its process {how_it_ended(status)}.")

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


PRELOADED = [work.__module__]
"""What takes seconds to import."""


def fork_server() -> ForkServerContext | SpawnContext:
    """Starts processes that need not import what takes long."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context


def _child(config: RunConfig, out: Path, threads: int | None, sender: Connection) -> None:
    leave_signals_to_command()
    threading.Thread(target=end_with_parent, daemon=True).start()
    outcome = work(config, out, threads=threads)
    with suppress(BrokenPipeError):  # the command has been killed: nobody wants to know
        sender.send(outcome)


def leave_signals_to_command() -> None:
    """Ignore Ctrl-C and the end of the terminal: the command hears of them, and tells us."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def end_with_parent() -> None:
    """Wait until the command has been killed; then save what is under way and end."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def how_it_ended(status: int) -> str:
    """What the exit status of a process says."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"
