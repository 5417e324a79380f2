"""Checkpoints: the last two states of a run on disk, so that no stream is lost."""

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
"""Seconds between two checkpoints, unless somebody wishes otherwise."""

KIND = "checkpoint"
LOG = logging.getLogger(__name__)


class Checkpoints:
    """A folder with the newest states of a run: files that name their step.

    A new file is safe on the disk before an older one goes, and the one before it stays, so that
    there is always a good one to go back to, whatever happens to the newest. Other files in the
    folder are left alone, and links are refused.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._newest: Path | None = None
        self._before: Path | None = None

    def files(self) -> list[Path]:
        """The checkpoints, newest first; what cannot be read is an error."""
        named = [path for path in self._own() if not is_leftover(path.name)]
        return sorted(named, key=step_of, reverse=True)

    def load(self) -> dict[str, Any] | None:
        """The newest state that can be read; None where none was ever saved.

        Says what is lost where that is not the newest file.
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
                    "%s; going back to %s: steps %d to %d are trained again.",
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
        """Save a state, then remove all checkpoints but it and the one of the step before it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"step-{step}.onpro"
        save_state(path, state)
        if path != self._newest:
            self._newest, self._before = path, self._newest
        for other in self._own():
            if other not in (self._newest, self._before):
                other.unlink()

    def remove(self) -> None:
        """Remove them all."""
        for path in self._own():
            path.unlink()
        with suppress(OSError):  # it is not there, or holds something else
            self.folder.rmdir()

    def _own(self) -> list[Path]:
        """Checkpoints and what a kill has left half-written."""
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
    """The step after which a checkpoint was saved.

    >>> step_of(Path("checkpoint/step-120.onpro"))
    120
    """
    return int(_NAME.fullmatch(path.name)[1])  # type: ignore[index] # only asked of checkpoints


class Stopped(Exception):  # noqa: N818 # it is no error
    """A run was asked to stop, and its state is saved."""

    def __init__(self, signal: int) -> None:
        super().__init__(f"stopped by signal {signal}")
        self.signal = signal


class Saver:
    """Saves a run's state every so many seconds, after each task, and before it stops.

    The run waits only while its state is copied; the copy is written while it goes on. A state is
    on the disk when the next one is kept, when the run stops, and when this is closed. What goes
    wrong in writing is raised then.

    Args:
        checkpoints: where to.
        every: seconds between two checkpoints; 0: only after each task and before a stop.
        stop: the number of the signal that asks the run to stop, None as long as nobody does.
        beside: what to save beside the run's own state.
    """

    def __init__(
        self,
        checkpoints: Checkpoints,
        every: float,
        *,
        stop: Callable[[], int | None] = lambda: None,
        beside: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        require_interval(every)
        self._checkpoints = checkpoints
        self._every = every
        self._stop = stop
        self._beside = beside
        self._last = time.monotonic()
        self._writer = ThreadPoolExecutor(1, "checkpoints")
        self._writing: Future[None] | None = None

    def due(self) -> bool:
        """Whether it is time for a checkpoint; asks only the clock."""
        return self._every > 0 and time.monotonic() - self._last >= self._every

    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stop() is not None

    def keep(self, state: dict[str, Any]) -> None:
        """Save the state of a trainer; raises `Stopped` where a stop was asked for."""
        frozen = freeze({"trainer": state, **self._beside()}, kind=KIND)
        self._wait()
        step = state["stream"]["position"]
        self._writing = self._writer.submit(self._checkpoints.save, step, frozen)
        self._last = time.monotonic()
        signal = self._stop()
        if signal is not None:
            self._wait()
            raise Stopped(signal)

    def close(self) -> None:
        """Wait until what was kept is written."""
        try:
            self._wait()
        finally:
            self._writer.shutdown()

    def _wait(self) -> None:
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()


def require_interval(seconds: float) -> None:
    """Refuse a time between checkpoints that is none."""
    if not seconds >= 0:
        raise UserError(
            f"the time between checkpoints must be 0 seconds or more, not {seconds}; "
            "0 saves one after each task only."
        )
