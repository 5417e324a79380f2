"""Files written whole or not at all, and read without surprises."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

NEW_FILE = 0o666
"""Mode of a new file, before the user's umask."""

PRIVATE_FILE = 0o600
"""Mode of a new file that nobody else may read."""

_PREFIX, _SUFFIX = ".onpro-", ".part"
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # else opening a FIFO waits for its other end
_BINARY = getattr(os, "O_BINARY", 0)  # Windows only


@contextmanager
def replacing(path: Path, *, mode: int = NEW_FILE) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` only once it is safe on the disk.

    What is written goes to a file of its own in the same folder, so any number of threads and
    processes may replace one path: the last to finish wins, and a reader sees one of them whole.
    If `path` is a link, the file it points to is replaced. An existing file keeps its mode and,
    where the system allows it, its owner.

    Args:
        path: the file to replace or create.
        mode: of a file that does not exist yet, before the umask.
    """
    target = _target(path)
    old = _status(target)
    part = target.with_name(f"{_PREFIX}{secrets.token_hex(6)}{_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY
    handle = os.open(part, flags, mode if old is None else PRIVATE_FILE)
    try:
        with open(handle, "wb") as file:  # noqa: PTH123 # a descriptor has no path
            if old is not None and hasattr(os, "fchown"):
                with suppress(PermissionError):
                    os.fchown(handle, old.st_uid, old.st_gid)
                os.fchmod(handle, stat.S_IMODE(old.st_mode))
            yield file
            file.flush()
            os.fsync(handle)
        part.replace(target)
        _sync_folder(target.parent)
    finally:
        part.unlink(missing_ok=True)


def is_leftover(name: str) -> bool:
    """Whether a file of that name was left by a process killed inside `replacing`.

    >>> is_leftover(".onpro-0123456789ab.part"), is_leftover("thesis.part")
    (True, False)
    """
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def read_plain(path: Path, *, follow_links: bool = True) -> bytes:
    """The content of a regular file; OSError for anything else, without waiting for it.

    Args:
        path: the file.
        follow_links: whether `path` itself may be a link.
    """
    with open_plain(path, "rb", follow_links=follow_links) as file:
        return file.read()


def open_plain(path: Path, mode: Literal["rb", "ab"], *, follow_links: bool = False) -> BinaryIO:
    """Open a regular file to read or to append; OSError for anything else, without waiting.

    Args:
        path: the file; one to append to is made where it is missing.
        mode: as of `open`.
        follow_links: whether `path` itself may be a link.
    """
    flags = os.O_RDONLY if mode == "rb" else os.O_WRONLY | os.O_APPEND | os.O_CREAT
    handle = os.open(
        path, flags | _NO_WAIT | _BINARY | (0 if follow_links else _NO_FOLLOW), NEW_FILE
    )
    try:
        _require_regular(os.fstat(handle), path)
        return os.fdopen(handle, mode)
    except BaseException:
        os.close(handle)
        raise


def _target(path: Path) -> Path:
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():  # a loop
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _status(path: Path) -> os.stat_result | None:
    """The state of an existing regular file, None where there is none."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    _require_regular(status, path)
    return status


def _require_regular(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))


def _sync_folder(folder: Path) -> None:
    """Make a rename last: the folder's own entry has to reach the disk too."""
    if os.name != "posix":  # elsewhere a folder cannot be opened
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
