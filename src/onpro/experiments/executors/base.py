"""Run many requests on an executor: none is lost or repeated, and a failure stops no other."""

import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from onpro.errors import UserError
from onpro.runs.config import RunConfig
from onpro.runs.files import is_held
from onpro.runs.folder import final_folder, own_name, repetition_of
from onpro.runs.reading import finished_in
from onpro.training.checkpoint import CHECKPOINT_EVERY

RETRIES = 2
"""How often a run is started again whose process died."""

LOOK_EVERY = 0.1
"""Seconds between two looks at the runs under way."""

LOOK_AGAIN = 2.0
"""Seconds until another look at a run that another process works on."""

PATIENCE = 60.0
"""Seconds that stopped runs get to save a checkpoint."""


@dataclass(frozen=True)
class RunRequest:
    """A run to be trained, or resumed from its last checkpoint."""

    folder: Path
    config: RunConfig
    fresh: bool = False
    """Start over, whatever there is of the run."""
    checkpoint_every: float = CHECKPOINT_EVERY
    tensorboard: bool = False
    wandb: bool = False
    threads: int | None = None
    """Threads on the CPU; None is the number it began with, else `THREADS`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", own_name(self.folder))

    @property
    def final_folder(self) -> Path:
        """Folder of the result; that of the finished run if this one repeats it."""
        return final_folder(self.folder)

    @property
    def current_folder(self) -> Path:
        """Folder that the run is trained in; another one while it repeats a finished run."""
        repetition = repetition_of(self.final_folder)
        return repetition if self.fresh and repetition.exists() else self.folder


@dataclass(frozen=True)
class JobResult:
    """How an attempt at a run ended."""

    kind: Literal["finished", "failed", "defect", "died", "busy"]
    """Failed: by a mistake of the user; defect: by an error of the program; died: it was
    interrupted and can be resumed; busy: another process works on the run."""
    reason: str = ""
    """A sentence, unless the run is finished."""
    output: str = ""
    """What the run printed."""


class Job(Protocol):
    """An attempt at a run."""

    def result(self) -> JobResult | None:
        """Return how it ended, None while it runs."""

    def stop(self) -> None:
        """Ask it to save a checkpoint and end."""

    def kill(self) -> None:
        """End it at once."""


class Executor(Protocol):
    """Starts runs somewhere."""

    def device(self) -> Literal["cpu", "cuda"]:
        """Return the kind of device that runs compute on."""

    def slots(self) -> int:
        """Return how many runs fit at the moment, those under way included."""

    def start(self, request: RunRequest, *, alone: bool) -> Job:
        """Start a run; alone: in a process without other runs."""

    def close(self) -> None:
        """Release processes and connections."""


@dataclass(frozen=True)
class RunEvent:
    """A change in the state of a run; `waiting` comes regularly, without a run."""

    kind: Literal["started", "again", "finished", "failed", "waiting"]
    request: RunRequest | None = None
    result: JobResult = JobResult("finished")

    @property
    def reason(self) -> str:
        """Return why the run failed or is started again."""
        return self.result.reason


@dataclass(frozen=True)
class _Attempt:
    request: RunRequest
    number: int = 1
    not_before: float = 0.0

    def later(self) -> "_Attempt":
        return replace(self, not_before=time.monotonic() + LOOK_AGAIN)

    def again(self) -> "_Attempt":
        """Return the next attempt, which resumes a repetition instead of starting it over."""
        request = self.request
        folder = request.current_folder
        if folder != request.folder:
            request = replace(request, folder=folder, fresh=False)
        return replace(self, request=request, number=self.number + 1)


@dataclass
class _Queue:
    waiting: deque[_Attempt]
    under_way: list[tuple[_Attempt, Job]] = field(default_factory=list)


def requests(configs: Iterable[RunConfig], out: Path, **how: Any) -> list[RunRequest]:
    """Return requests for runs in their folders below `out`; `how` has fields of `RunRequest`."""
    return [RunRequest(out / config.folder, config, **how) for config in configs]


def execute(runs: Sequence[RunRequest], executor: Executor) -> Generator[RunEvent, None, None]:
    """Train all runs that are not finished, as many at once as the executor has room for.

    A run that another process works on is waited for. Closing the generator, or an exception in
    it, stops all runs under way, which save a checkpoint first.
    """
    queue = _Queue(deque(map(_Attempt, runs)))
    try:
        while queue.waiting or queue.under_way:
            yield from _start(queue, executor)
            time.sleep(LOOK_EVERY)
            yield from _look(queue)
            yield RunEvent("waiting")
    finally:
        _stop([job for _, job in queue.under_way])


def _start(queue: _Queue, executor: Executor) -> Iterator[RunEvent]:
    """Start the runs that there is room for."""
    room = executor.slots() - len(queue.under_way)
    for _ in range(len(queue.waiting)):
        if room <= 0:
            return
        attempt = queue.waiting.popleft()
        request = attempt.request
        if attempt.not_before > time.monotonic():
            queue.waiting.append(attempt)
            continue
        if request.folder.exists():
            ended = None if request.fresh else _ended(request, request.folder)
            if ended:
                yield ended
                continue
            if is_held(request.final_folder):
                queue.waiting.append(attempt.later())
                continue
        try:
            for file in request.config.user_files:
                file.require()  # a worker imports it too
        except UserError as error:
            yield RunEvent("failed", request, JobResult("failed", str(error)))
            continue
        job = executor.start(request, alone=attempt.number > 1)
        queue.under_way.append((attempt, job))
        room -= 1
        yield RunEvent("started", request)


def _look(queue: _Queue) -> Iterator[RunEvent]:
    """See which attempts have ended, and what follows from it."""
    for attempt, job in list(queue.under_way):
        result = job.result()
        if result is None:
            continue
        queue.under_way.remove((attempt, job))
        request = attempt.request
        if result.kind == "busy":
            queue.waiting.append(attempt.later())
        elif result.kind == "died" and attempt.number <= RETRIES:
            queue.waiting.appendleft(attempt.again())
            yield RunEvent("again", request, result)
        elif result.kind == "finished":
            missing = JobResult("failed", NOT_HERE.format(out=request.final_folder.parent))
            ended = _ended(request, request.final_folder) or RunEvent("failed", request, missing)
            yield replace(ended, result=replace(ended.result, output=result.output))
        else:
            times = f" ({attempt.number} attempts)" if attempt.number > 1 else ""
            yield RunEvent("failed", request, replace(result, reason=result.reason + times))


NOT_HERE = (
    "the run has finished elsewhere, but its result is not here: {out} must be on a file system "
    "that all machines share."
)


def _ended(request: RunRequest, folder: Path) -> RunEvent | None:
    """Return the event of a run that has a result, None if it has none."""
    try:
        done = finished_in(folder, request.config)
    except UserError as error:
        return RunEvent("failed", request, JobResult("failed", str(error)))
    return RunEvent("finished", request) if done else None


def _stop(jobs: Sequence[Job]) -> None:
    """Stop all jobs; kill those that take longer than `PATIENCE`."""
    until = time.monotonic() + PATIENCE
    try:
        for job in jobs:
            job.stop()
        while any(job.result() is None for job in jobs) and time.monotonic() < until:
            time.sleep(LOOK_EVERY)
    finally:
        for job in jobs:
            with suppress(Exception):
                if job.result() is None:
                    job.kill()
