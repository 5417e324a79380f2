"""One run in a process of its own, on whatever machine."""

import os
import signal
import sys
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
from onpro.experiments.files import writing_below
from onpro.experiments.plan import is_held
from onpro.experiments.run import Interrupted, run


@dataclass(frozen=True)
class Outcome:
    """How an attempt at a run ended."""

    kind: Literal["finished", "failed", "died", "busy"]
    """Died: it did not end by itself and can go on; busy: another process works on the run."""
    reason: str = ""
    """A sentence, unless the run is finished."""
    said: str = ""
    """What the run had to say on the way."""


def work(config: RunConfig, out: Path, *, threads: int | None = None) -> Outcome:
    """Train a run, or go on with it; SIGTERM and SIGINT make it save its state and end.

    What it prints goes into a file beside its folder, which stays there after a defect, with a
    traceback.
    """
    if threads is not None:
        torch.set_num_threads(threads)
    log = out / f"{config.folder}.log"
    try:
        with writing_below(out), _saying_into(log), _stop_requests() as signals:
            outcome = _attempt(config, out, lambda: signals[0] if signals else None)
    except UserError as error:  # a full disk has no room for a log either
        return Outcome("failed", str(error))
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {error}; see {log}.")
    said = log.read_text(errors="replace").strip()
    log.unlink()
    return replace(outcome, said=said)


def _attempt(config: RunConfig, out: Path, stop: Callable[[], int | None]) -> Outcome:
    try:
        run(config, out, stop=stop)
    except Interrupted as interrupted:
        return Outcome("died", str(interrupted))
    except UserError as error:
        return Outcome("busy" if is_held(out / config.folder) else "failed", str(error))
    except Exception:
        traceback.print_exc()
        raise
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
def _saying_into(path: Path) -> Iterator[None]:
    """Redirect what the process prints, libraries in other languages included, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    streams = [(sys.stdout, 1), (sys.stderr, 2)]
    kept = [os.dup(number) for _, number in streams]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
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
        os.close(file)
