"""The folder of a run, and the files in it that the run may remove or replace."""

import os
import re
from collections.abc import Container
from contextlib import suppress
from pathlib import Path

from onpro.errors import UserError
from onpro.files import is_leftover
from onpro.fitted import MODEL_FILE
from onpro.runs.config import RunConfig
from onpro.runs.config_file import read_config
from onpro.training import Checkpoints

CONFIG, EVENTS, RESULT, WANDB_ID = "config.json", "events.jsonl", "result.json", "wandb-id"
TENSORBOARD = "events.out.tfevents."
"""How the names of TensorBoard's files begin."""

TASK_NETWORK = re.compile(r"network-\d+\.onpro")
"""Names of the networks after each task but the last."""

REPETITION = ".new"
"""Added to the name of a folder whose run repeats a finished one."""


def repetition_of(folder: Path) -> Path:
    """Return the folder in which a finished run is repeated."""
    return folder.with_name(folder.name + REPETITION)


def final_folder(folder: Path) -> Path:
    """Return the folder of a run; of a repetition, that of the finished run it replaces."""
    return folder.with_name(folder.name.removesuffix(REPETITION))


def own_name(folder: Path) -> Path:
    """Return a folder under its own name instead of that of a link, `.` or `..`."""
    return folder.resolve() if folder.is_symlink() or folder.name in ("", "..") else folder


class RunFolder:
    """Where a run is saved.

    A run shares its folder with whatever else people put there: it knows its own files by their
    names, and removes or replaces no others. Links are refused, so that nothing outside is touched.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / CONFIG
        self.events = path / EVENTS
        self.result = path / RESULT
        self.model = path / MODEL_FILE
        self.checkpoints = Checkpoints(path / "checkpoint")

    def network(self, task: int) -> Path:
        """Return the file of the network after a task, numbered from 1."""
        return self.path / f"network-{task}.onpro"

    def own(self) -> set[str]:
        """Names of the run's files, checkpoints aside, that are there."""
        return {entry.name for entry in self._entries() if _is_own(entry.name)}

    def require(self, config: RunConfig) -> None:
        """Refuse a folder that holds anything but this very run, beside the user's files."""
        entries = {entry.name: entry for entry in self._entries() if not is_leftover(entry.name)}
        if not entries:
            return
        if CONFIG not in entries:
            raise UserError(
                f"{self.path} is not the folder of a run: move it away, or choose another."
            )
        for name, entry in entries.items():
            if entry.is_symlink() and _is_own(name):
                raise UserError(f"{self.path / name} is a link: put the file itself there.")
        there = read_config(self.path)
        if there.identity != config.identity:
            raise UserError(
                f"{self.path} holds another run, {there.folder}: move it away, or choose another."
            )
        self.checkpoints.files()  # refuses what cannot be read

    def remove(self, *, keep: Container[str] = (), folder: bool = False) -> None:
        """Remove the run's files except those named, and the folder itself if it is empty then.

        Args:
            keep: names of files that stay.
            folder: whether the folder may go.
        """
        for name in self.own():
            if name not in keep:
                (self.path / name).unlink(missing_ok=True)
        self.checkpoints.remove()
        if folder:
            with suppress(OSError):  # the user's files stay
                self.path.rmdir()

    def move_to(self, place: "RunFolder") -> None:
        """Put a finished run in the place of another.

        The result moves last: where it has not, the move is not over and can be repeated.
        """
        if not place.path.exists():
            self.path.rename(place.path)
            return
        if self.config.exists():  # else the move has begun: what is there has moved already
            for name in place.own() - {CONFIG, RESULT}:
                (place.path / name).unlink()
        place.checkpoints.remove()
        self.checkpoints.remove()
        order = {CONFIG: 0, RESULT: 2}
        for name in sorted(self.own(), key=lambda name: order.get(name, 1)):
            (self.path / name).replace(place.path / name)
        with suppress(OSError):  # the user's files stay
            self.path.rmdir()

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as entries:
                return list(entries)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UserError(f"{self.path} cannot be read: {error.strerror}.") from error


def _is_own(name: str) -> bool:
    return (
        name in (CONFIG, EVENTS, RESULT, MODEL_FILE, WANDB_ID)
        or name.startswith(TENSORBOARD)
        or TASK_NETWORK.fullmatch(name) is not None
        or is_leftover(name)
    )
