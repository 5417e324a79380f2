"""Many runs at once: none is lost, none repeated, one that fails does not stop the others."""

import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol

from onpro.errors import UserError
from onpro.experiments.executors.worker import Outcome
from onpro.runs.config import RunConfig
from onpro.runs.files import is_held
from onpro.runs.runner import finished

RETRIES = 2
"""How often a run is started again whose worker has died."""

LOOK_EVERY = 0.1
"""Seconds between two looks at the runs under way."""

LOOK_AGAIN = 2.0
"""Seconds until another look at a run that another process works on."""

PATIENCE = 60.0
"""Seconds that runs get to save their state when all is to stop."""


class Job(Protocol):
    """An attempt at a run, under way somewhere."""

    def outcome(self) -> Outcome | None:
        """How it ended; None as long as it goes on."""

    def stop(self) -> None:
        """Ask it to save its state and end."""

    def kill(self) -> None:
        """End it at once."""


class Executor(Protocol):
    """Says where runs happen."""

    def device(self) -> Literal["cpu", "cuda"]:
        """On what the runs compute there."""

    def slots(self) -> int:
        """How many runs fit at the moment, those under way included."""

    def start(self, config: RunConfig, out: Path, *, alone: bool) -> Job:
        """Begin or continue a run; alone: in a process that has no other."""

    def close(self) -> None:
        """Let go of what was taken for the runs."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a run; `waiting` comes regularly while nothing does."""

    kind: Literal["started", "again", "finished", "failed", "waiting"]
    config: RunConfig | None = None
    reason: str = ""
    """Why it failed, or why it is started again."""
    said: str = ""
    """What the run had to say on the way."""


@dataclass(frozen=True)
class _Attempt:
    config: RunConfig
    number: int = 1
    not_before: float = 0.0


@dataclass
class _Work:
    """What is to be done, and what is under way."""

    waiting: deque[_Attempt]
    under_way: list[tuple[_Attempt, Job]] = field(default_factory=list)


def execute(
    configs: Sequence[RunConfig], out: Path, executor: Executor
) -> Generator[Event, None, None]:
    """Run everything that is not finished, as many at once as the executor has room for.

    A run that another process works on is left to it, and waited for. When the iterator is closed
    or interrupted, all runs under way save their state and end.
    """
    todo = _Work(deque(map(_Attempt, configs)))
    try:
        while todo.waiting or todo.under_way:
            yield from _start(todo, out, executor)
            time.sleep(LOOK_EVERY)
            yield from _look(todo, out)
            yield Event("waiting")
    finally:
        _stop([job for _, job in todo.under_way])


def _start(todo: _Work, out: Path, executor: Executor) -> Iterator[Event]:
    """Start what there is room for."""
    room = executor.slots() - len(todo.under_way)
    for _ in range(len(todo.waiting)):
        if room <= 0:
            return
        attempt = todo.waiting.popleft()
        folder = out / attempt.config.folder
        if attempt.not_before > time.monotonic():
            todo.waiting.append(attempt)
            continue
        if folder.exists():
            ended = _ended(attempt.config, out)
            if ended:
                yield ended
                continue
            if is_held(folder):
                todo.waiting.append(_later(attempt))
                continue
        if attempt.config.method_file:
            try:
                attempt.config.method_file.require()  # a worker imports it too
            except UserError as error:
                yield Event("failed", attempt.config, str(error))
                continue
        job = executor.start(attempt.config, out, alone=attempt.number > 1)
        todo.under_way.append((attempt, job))
        room -= 1
        yield Event("started", attempt.config)


def _look(todo: _Work, out: Path) -> Iterator[Event]:
    """See which attempts have ended, and what follows from it."""
    for attempt, job in list(todo.under_way):
        outcome = job.outcome()
        if outcome is None:
            continue
        todo.under_way.remove((attempt, job))
        config = attempt.config
        if outcome.kind == "busy":
            todo.waiting.append(_later(attempt))
        elif outcome.kind == "died" and attempt.number <= RETRIES:
            todo.waiting.appendleft(replace(attempt, number=attempt.number + 1))
            yield Event("again", config, outcome.reason, outcome.said)
        elif outcome.kind == "finished":
            ended = _ended(config, out) or Event("failed", config, NOT_HERE.format(out=out))
            yield replace(ended, said=outcome.said)
        else:
            times = f" ({attempt.number} attempts)" if attempt.number > 1 else ""
            yield Event("failed", config, outcome.reason + times, outcome.said)


NOT_HERE = (
    "the run has finished elsewhere but is not to be seen here: {out} must lie on a file system "
    "that all machines share."
)


def _ended(config: RunConfig, out: Path) -> Event | None:
    """What to tell of a run that has a result; None where it has none."""
    try:
        done = finished(config, out)
    except UserError as error:
        return Event("failed", config, str(error))
    return Event("finished", config) if done else None


def _later(attempt: _Attempt) -> _Attempt:
    return replace(attempt, not_before=time.monotonic() + LOOK_AGAIN)


def _stop(jobs: Sequence[Job]) -> None:
    """Have all jobs save their state and end; who takes too long is killed."""
    until = time.monotonic() + PATIENCE
    try:
        for job in jobs:
            job.stop()
        while any(job.outcome() is None for job in jobs) and time.monotonic() < until:
            time.sleep(LOOK_EVERY)
    finally:
        for job in jobs:
            with suppress(Exception):
                if job.outcome() is None:
                    job.kill()
