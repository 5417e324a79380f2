"""One run in a process of its own, on whatever machine."""

import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Literal

import torch

from onpro.errors import UserError
from onpro.experiments.config import RunConfig
from onpro.experiments.plan import is_held
from onpro.experiments.run import Interrupted, prepare, run


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
    """
    if threads is not None:
        torch.set_num_threads(threads)
    log = out / f"{config.folder}.log"
    with tempfile.TemporaryFile() as file:
        with _saying_into(file.fileno()), _stop_requests() as signals:
            outcome = _attempt(config, out, lambda: signals[0] if signals else None)
        file.seek(0)
        said = file.read().decode(errors="replace").strip()
    log.unlink(missing_ok=True)
    if outcome.kind != "defect":
        return replace(outcome, said=said)
    log.write_text(said + "\n")
    return replace(outcome, reason=f"{outcome.reason}; see {log}.")


def _attempt(config: RunConfig, out: Path, stop: Callable[[], int | None]) -> Outcome:
    folder = out / config.folder
    try:
        trainer = prepare(config)
        if (folder / "result.json").exists():  # another process was faster
            return Outcome("finished")
        run(config, out, trainer=trainer, stop=stop)
    except Interrupted as interrupted:
        return Outcome("died", str(interrupted))
    except UserError as error:
        taken = is_held(folder) or (folder / "result.json").exists()
        return Outcome("busy" if taken else "failed", str(error))
    except Exception as error:
        traceback.print_exc()
        return Outcome("defect", f"{type(error).__name__}: {error}")
    return Outcome("finished")


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Collect the signals that ask the run to stop, instead of ending at once."""
    arrived: list[int] = []

    def request(number: int, frame: FrameType | None) -> None:
        arrived.append(number)

    before = {n: signal.signal(n, request) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
