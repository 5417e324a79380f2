"""Files of a run: written whole or not at all, by one process at a time."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from onpro.errors import UserError
from onpro.files import read_plain, replacing


def write_json(path: Path, value: Any) -> None:
    """Write a file that is there completely or not at all, even after a crash."""
    text = json.dumps(value, indent=1) + "\n"
    with replacing(path) as file:
        file.write(text.encode())


def read_json(path: Path) -> Any:
    """The content of a JSON file; a sentence where it is missing or damaged."""
    try:
        return json.loads(read_plain(path))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


class Held(UserError):  # noqa: N818 # it is a state of a folder
    """Another process holds a folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process alone; the system lets go of it when the process ends.

    The lock is on a file beside the folder, since the folder itself may come and go. A process
    that opened the file just before its owner removed it finds another file, or none, in its place
    and tries again.
    """
    path = folder.with_name(f".{folder.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Held(
                    f"another process is working on {folder}: wait until it ends, or end it."
                ) from None
            if _is_at(path, file):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return


def _is_at(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def writing_below(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into a sentence that names the folder."""
    try:
        yield
    except BrokenPipeError:
        raise  # no file has refused: whoever read what a listener prints has gone
    except OSError as error:
        raise _cannot_write(folder, error.strerror or str(error)) from error


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written in, before any work is done for it."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise _cannot_write(folder, f"{there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _cannot_write(folder, "permission denied")


def _cannot_write(folder: Path, reason: str) -> UserError:
    return UserError(
        f"cannot write in {folder}: {reason.lower()}; make room there, or choose another folder."
    )
