"""Files of a run: written whole or not at all, by one process at a time."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
        content = read_plain(path)
        value = json.loads(content)
        if b"\\ud" in content.lower():  # half of a surrogate pair is no text
            json.dumps(value, ensure_ascii=False).encode()
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    return value


class Held(UserError):  # noqa: N818 # it is a state of a folder
    """Another process holds a folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process alone; the system lets go of it when the process ends.

    The lock is on a file beside the folder, since the folder itself may come and go. A process
    that opened the file just before its owner removed it finds another file, or none, in its place
    and tries again. So it does while others only look, which they do with a shared lock.
    """
    path = _lock_of(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            if not _lock(handle, fcntl.LOCK_EX):
                if not _lock(handle, fcntl.LOCK_SH):
                    raise Held(
                        f"another process is working on {folder}: wait until it ends, or end it."
                    )
                time.sleep(0.001)  # somebody only looks
            elif _is_at(path, handle):
                try:
                    yield
                finally:
                    path.unlink(missing_ok=True)
                return
        finally:
            os.close(handle)


def is_held(folder: Path) -> bool:
    """Whether a process is working on a folder; nothing is changed, and nobody kept from it."""
    try:
        handle = os.open(_lock_of(folder), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # there is none, or it may not be read
        return False
    try:
        return not _lock(handle, fcntl.LOCK_SH)
    finally:
        os.close(handle)


def _lock_of(folder: Path) -> Path:
    """The file whose lock is the folder's, under whatever name the folder goes."""
    folder = Path(os.path.realpath(folder))
    return folder.with_name(f".{folder.name}.lock")


def _lock(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(handle))
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


def save(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, so that a full disk leaves an older one as it was.

    What is no file, such as /dev/stdout, is written to as it is.
    """
    try:
        if path.exists() and not path.is_file():
            _write_through(path, content)
        else:
            with replacing(path) as file:
                file.write(content)
    except BrokenPipeError:
        raise  # whoever read it has gone
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot write {path}: {reason.lower()}.") from None


def _write_through(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)  # else a FIFO waits for a reader
    os.set_blocking(handle, True)
    with open(handle, "wb") as file:  # noqa: PTH123 # a descriptor has no path
        file.write(content)
