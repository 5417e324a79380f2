"""Atomic writing and locking of run files."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout, lock_descriptor

from onpro.errors import UserError
from onpro.files import NO_FOLLOW, NO_WAIT, read_plain, replacing

FULL = {getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name)}
"""Errors of a disk without room, or of a user without more of it."""

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment] # the module, or nothing

PATIENCE = 1.0
"""Seconds for which `locked` retries; `is_held` holds a lock for much less."""


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically."""
    text = json.dumps(value, indent=1) + "\n"
    with replacing(path) as file:
        file.write(text.encode())


def read_json(path: Path) -> Any:
    """Read a JSON file; raise UserError if it is missing or damaged."""
    try:
        return parse_json(read_plain(path))
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


def parse_json(content: bytes) -> Any:
    """Parse JSON; raise ValueError or RecursionError if it cannot be used."""
    value = json.loads(content)
    if b"\\ud" in content.lower():  # half of a surrogate pair cannot be encoded
        json.dumps(value, ensure_ascii=False).encode()
    return value


class Held(UserError):  # noqa: N818 # it is a state of a folder
    """Another process holds the lock of a folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder; raise `Held` if another process does.

    The lock is on a file beside the folder, since the folder itself is created and removed while it
    is held. The file is removed on release. The operating system releases the lock of a process
    that is killed: its file stays and blocks nobody.
    """
    path = _lock_path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(
        path,
        timeout=PATIENCE,
        poll_interval=0.01,
        thread_local=False,  # a generator may be closed by another thread
        fallback_to_soft=False,  # a soft lock outlives a killed process
    )
    try:
        lock.acquire()
    except Timeout:
        raise Held(
            f"another process is working on {folder}: wait until it ends, or end it."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows cannot remove an open file; there `release` removes it
            path.unlink()  # a process that has just opened it finds it removed and retries
        lock.release()


def is_held(folder: Path) -> bool:
    """Return whether a process holds the lock of a folder, without changing anything on disk.

    An existing lock file is locked for a moment, with a lock that readers share; `locked` retries.
    """
    try:
        handle = os.open(_lock_path(folder), os.O_RDONLY | NO_FOLLOW | NO_WAIT)
    except OSError:  # there is no lock file, or it may not be read
        return False
    try:
        return not _lock_shared(handle)
    except OSError:  # the file system has no locks
        return False
    finally:
        os.close(handle)


def _lock_shared(handle: int) -> bool:
    """Return whether a lock that readers share could be taken; it ends with the handle."""
    if fcntl is None:  # Windows has exclusive locks only
        return lock_descriptor(handle, blocking=False)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_path(folder: Path) -> Path:
    """Return the lock file of a folder, the same for all names of the folder."""
    folder = Path(os.path.realpath(folder))
    return folder.with_name(f".{folder.name}.lock")


@contextmanager
def writing_below(folder: Path) -> Iterator[None]:
    """Convert an OSError of the file system to a UserError that names the folder."""
    try:
        yield
    except BrokenPipeError:
        raise  # not from a file: the reader of what a listener prints is gone
    except OSError as error:
        is_full = error.errno in FULL
        raise _cannot_write(folder, error.strerror or str(error), is_full=is_full) from error


def require_writable(folder: Path) -> None:
    """Raise UserError if a folder cannot be created or written in."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise _cannot_write(folder, f"{there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _cannot_write(folder, "permission denied")


def _cannot_write(folder: Path, reason: str, *, is_full: bool = False) -> UserError:
    remedy = "make room there, or choose another folder" if is_full else "choose another folder"
    return UserError(f"cannot write in {folder}: {reason.lower()}; {remedy}.")


def require_folder_of(path: Path) -> None:
    """Raise UserError if there is no folder to write a file in."""
    if not path.parent.is_dir():
        raise UserError(f"cannot write {path}: there is no folder {path.parent}.")


def save(path: Path, content: bytes) -> None:
    """Write a file atomically; write to anything else, such as /dev/stdout, directly."""
    try:
        if path.exists() and not path.is_file():
            _write_through(path, content)
        else:
            with replacing(path) as file:
                file.write(content)
    except BrokenPipeError:
        raise  # the reader is gone
    except (OSError, ValueError) as error:  # ValueError: a name with a null byte
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot write {path}: {reason.lower()}.") from None


def _write_through(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | NO_WAIT)
    if NO_WAIT:
        os.set_blocking(handle, True)
    with open(handle, "wb") as file:  # noqa: PTH123 # a descriptor has no path
        file.write(content)
