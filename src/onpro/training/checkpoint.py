"""Checkpoints: the last two states of a run on disk."""

import logging
import os
import re
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.files import is_leftover
from onpro.training.statefile import Frozen, freeze, load_state, save_state

CHECKPOINT_EVERY = 30.0
"""Default number of seconds between two checkpoints."""

KIND = "checkpoint"
LOG = logging.getLogger(__name__)


class Checkpoints:
    """A folder with the last two states of a run, in files named after their step.

    A new file is safe on the disk before the oldest is removed, so that there is always a file to
    fall back on if the newest is damaged. Other files in the folder are left alone, and links are
    refused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._newest: Path | None = None
        self._before: Path | None = None

    def files(self) -> list[Path]:
        """Return the checkpoints, newest first; raise UserError if the folder is unreadable."""
        named = [path for path in self._own() if not is_leftover(path.name)]
        return sorted(named, key=step_of, reverse=True)

    def load(self) -> dict[str, Any] | None:
        """Load the newest state that can be read; return None if there is no checkpoint.

        Logs a warning that names the lost steps if the newest file is damaged.
        """
        complaints: list[str] = []
        files = self.files()
        for path in files:
            try:
                state = load_state(path, kind=KIND)
            except UserError as error:
                complaints.append(str(error).rstrip("."))
                continue
            if complaints:
                LOG.warning(
                    "%s; resuming from %s: steps %d to %d are trained again.",
                    "; ".join(complaints),
                    path.name,
                    step_of(path) + 1,
                    step_of(files[0]),
                )
            self._newest, *older = files[files.index(path) :]
            self._before = older[0] if older else None
            return state
        if complaints:
            raise UserError(
                f"no checkpoint can be read: {'; '.join(complaints)}; onpro resume --fresh starts "
                "over, without what the run has learned."
            )
        return None

    def save(self, step: int, state: Frozen) -> None:
        """Save a state, then remove all checkpoints but it and the previous one."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step}.onpro"
        save_state(path, state)
        if path != self._newest:
            self._newest, self._before = path, self._newest
        for other in self._own():
            if other not in (self._newest, self._before):
                other.unlink()

    def remove(self) -> None:
        """Remove all checkpoints."""
        for path in self._own():
            path.unlink()
        with suppress(OSError):  # it does not exist, or holds other files
            self.folder.rmdir()

    def _own(self) -> list[Path]:
        """Return the checkpoints and the temporary files of an interrupted save."""
        if self.folder.is_symlink():
            raise UserError(f"{self.folder} is a link: put the folder itself there.")
        try:
            with os.scandir(self.folder) as entries:
                own = [e for e in entries if _NAME.fullmatch(e.name) or is_leftover(e.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.folder} cannot be read: {error.strerror}.") from error
        for entry in own:
            if not entry.is_file(follow_symlinks=False):
                raise UserError(f"{entry.path} is no regular file: remove it.")
        return [self.folder / entry.name for entry in own]


_NAME = re.compile(r"step-(\d+)\.onpro")


def step_of(path: Path) -> int:
    """Return the step after which a checkpoint was saved.

    >>> step_of(Path("checkpoint/step-120.onpro"))
    120
    """
    return int(_NAME.fullmatch(path.name)[1])  # type: ignore[index] # only called with checkpoints


class Stopped(Exception):  # noqa: N818 # it is no error
    """A signal has stopped the run."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class CheckpointWriter:
    """Saves a run's state at fixed intervals, or after each task, and before it stops.

    `save` copies the state, and a background thread writes the copy. The next `save`, a stop and
    `close` wait for it, and raise its errors.

    Args:
        checkpoints: Where to save.
        every: Seconds between two checkpoints; 0: one after each task instead.
        stop: Returns the signal that asks the run to stop, or None.
        extra_state: Returns what to save in addition to the state of the trainer.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: float,
        *,
        stop: Callable[[], int | None] = lambda: None,
        extra_state: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        require_interval(every)
        self._checkpoints = checkpoints
        self._every = every
        self._stop = stop
        self._extra_state = extra_state
        self._last = time.monotonic()
        self._thread = ThreadPoolExecutor(1, "checkpoints")
        self._pending: Future[None] | None = None

    def should_save(self, *, task_over: bool) -> bool:
        """Return whether the interval has passed, or without one, whether a task is over."""
        if not self._every:
            return task_over
        return time.monotonic() - self._last >= self._every

    def should_stop(self) -> bool:
        """Return whether a signal asks the run to stop."""
        return self._stop() is not None

    def save(self, state: dict[str, Any]) -> None:
        """Save the state of a trainer; raise `Stopped` if a signal asks the run to stop."""
        frozen = freeze({"trainer": state, **self._extra_state()}, kind=KIND)
        self._wait()
        step = state["stream"]["position"]
        self._pending = self._thread.submit(self._checkpoints.save, step, frozen)
        self._last = time.monotonic()
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Raise `Stopped` if a signal asks the run to stop, after the last save is on the disk."""
        signal = self._stop()
        if signal is not None:
            self._wait()
            raise Stopped(signal)

    def close(self) -> None:
        """Wait until the last state is on the disk."""
        try:
            self._wait()
        finally:
            self._thread.shutdown()

    def _wait(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


def require_interval(seconds: float) -> None:
    """Raise UserError unless the time between checkpoints is 0 or more."""
    if not seconds >= 0:
        raise UserError(
            f"the time between checkpoints must be 0 seconds or more, not {seconds}; "
            "0 saves one after each task instead."
        )
