"""Runs in a process that does nothing else, on whatever machine."""

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal

import torch

from onpro.data.imageset import ImageSet
from onpro.errors import UserError
from onpro.runs.config import RunConfig
from onpro.runs.files import Held
from onpro.runs.runner import End, Interrupted, last, load_images, prepare, running
from onpro.runs.threads import THREADS, cpu_threads, threads_of
from onpro.training import pick_device
from onpro.training.device import deterministic_mode


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    kind: Literal["finished", "failed", "defect", "died", "busy"]
    """Failed: by a mistake; defect: of the program; died: it did not end by itself and can go on;
    busy: another process works on the run."""
    reason: str = ""
    """A sentence, unless the run is finished."""
    said: str = ""
    """What the run had to say on the way."""


def work(config: RunConfig, out: Path, *, threads: int | None = None) -> Outcome:
    """Train a run, or go on with it; SIGTERM and SIGINT make it save its state and end.

    What it prints comes with the outcome; after a defect it stays in a file beside the run's
    folder, with a traceback.

    Args:
        config: what to run.
        out: where run folders are.
        threads: of the CPU; default: as many as the run began with, else `THREADS`.
    """
    with (
        listening() as said,
        stop_requests() as stop,
        deterministic_mode(pick_device(config.device), config.deterministic),
        cpu_threads(threads or threads_of(out / config.folder) or THREADS),
    ):
        outcome = last(attempt(config, out, stop=stop))
        return with_what_was_said(outcome, said(), config, out)


def attempt(
    config: RunConfig,
    out: Path,
    *,
    stop: Callable[[], int | None],
    images: Callable[[RunConfig], ImageSet] = load_images,
) -> Generator[None, int | None, Outcome]:
    """Train a run, or go on with it, handing over after each step; no error leaves it.

    Args:
        config: what to run.
        out: where run folders are.
        stop: the number of the signal that asks it to stop, None as long as nobody does.
        images: gives the run its data.
    """
    folder = out / config.folder
    try:
        trainer = prepare(config, images(config))
        if not (folder / "result.json").exists():  # else another process was faster
            yield from running(folder, config, trainer=trainer, stop=stop)
    except Interrupted as interrupted:
        return Outcome("died", str(interrupted))
    except Held as error:
        return Outcome("busy", str(error))
    except UserError as error:
        return Outcome("failed", str(error))
    except torch.OutOfMemoryError:
        return Outcome("died", "the GPU has not enough memory for it beside what is there.")
    except torch.AcceleratorError as error:  # this process computes nothing on it any more
        return Outcome("died", f"the GPU failed ({str(error).splitlines()[0]}).")
    except Exception as error:
        traceback.print_exc()
        return Outcome("defect", f"{type(error).__name__}: {error}")
    return Outcome("finished")


def with_what_was_said(outcome: Outcome, said: str, config: RunConfig, out: Path) -> Outcome:
    """The outcome with what was printed; after a defect that is in a file, which it names."""
    said = said.strip()
    log = out / f"{config.folder}.log"
    log.unlink(missing_ok=True)
    if outcome.kind != "defect":
        return replace(outcome, said=said)
    log.write_text(said + "\n")
    return replace(outcome, reason=f"{outcome.reason}; see {log}.")


def overheard(
    run: Generator[None, int | None, End], said: Callable[[], str]
) -> Generator[None, int | None, tuple[End, str]]:
    """A run that takes turns with others, and what was printed in its own turns.

    Args:
        run: hands over after each turn.
        said: tells what was printed since it was last asked.
    """
    heard: list[str] = []
    runs: int | None = None
    with closing(run):
        while True:
            try:
                run.send(runs)
            except StopIteration as end:
                return end.value, "".join([*heard, said()])
            heard.append(said())
            runs = yield


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Note signals that ask to stop instead of ending at once; tells the first that came."""
    arrived: list[int] = []

    def request(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {n: signal.signal(n, request) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: arrived[0] if arrived else None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def listening() -> Iterator[Callable[[], str]]:
    """Keep what the process prints from the terminal; tells what was printed since last asked."""
    told = 0
    with tempfile.TemporaryFile() as file:

        def said() -> str:
            nonlocal told
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            size = os.fstat(file.fileno()).st_size
            text = os.pread(file.fileno(), size - told, told)
            told = size
            return text.decode(errors="replace")

        with _saying_into(file.fileno()):
            yield said


@contextmanager
def _saying_into(file: int) -> Iterator[None]:
    """Redirect what the process prints, libraries in other languages included, to a file."""
    streams = [(sys.stdout, 1), (sys.stderr, 2)]
    kept = [os.dup(number) for _, number in streams]
    try:
        for stream, number in streams:
            stream.flush()
            os.dup2(file, number)
        yield
    finally:
        for (stream, number), before in zip(streams, kept, strict=True):
            stream.flush()
            os.dup2(before, number)
            os.close(before)
