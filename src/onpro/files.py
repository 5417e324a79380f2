"""Atomic writing and safe opening of files."""

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
"""Mode of a new file that only its owner may read."""

NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open` that refuses a symbolic link; 0 on Windows."""

NO_WAIT = getattr(os, "O_NONBLOCK", 0)
"""Flag of `os.open` without which opening a FIFO blocks until its other end opens; 0 on Windows."""

_PREFIX, _SUFFIX = ".onpro-", ".part"
_BINARY = getattr(os, "O_BINARY", 0)  # Windows only


@contextmanager
def replacing(path: Path, *, mode: int = NEW_FILE) -> Iterator[BinaryIO]:
    """Open a temporary file that atomically replaces `path` on success, after an fsync.

    The temporary file is in the same folder and has a unique name, so several threads and processes
    may replace one path: the last to finish wins, and readers see one version in full. If `path` is
    a symbolic link, its target is replaced. An existing file keeps its mode and, where permitted,
    its owner.

    Args:
        path: The file to replace or create.
        mode: Mode of a new file, before the umask.
    """
    target = _target(path)
    old = _status(target)
    part = target.with_name(f"{_PREFIX}{secrets.token_hex(6)}{_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | _BINARY
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


def expand_home(path: str | Path) -> Path:
    """Replace `~` or `~user` at the start by that home; as in a shell, it stays if there is none.

    >>> str(expand_home("birds/~")), str(expand_home("~no-such-user/birds"))
    ('birds/~', '~no-such-user/birds')
    """
    try:
        return Path(os.path.expanduser(path))  # noqa: PTH111 # pathlib raises if there is none
    except ValueError:  # a null byte or a lone surrogate
        return Path(path)


def is_leftover(name: str) -> bool:
    """Return whether a file of this name was left by a process killed inside `replacing`.

    >>> is_leftover(".onpro-0123456789ab.part"), is_leftover("thesis.part")
    (True, False)
    """
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def read_plain(path: Path, *, follow_links: bool = True) -> bytes:
    """Read a regular file; raise OSError for anything else, without blocking.

    Args:
        path: The file.
        follow_links: Whether `path` itself may be a symbolic link.
    """
    with open_plain(path, "rb", follow_links=follow_links) as file:
        return file.read()


def open_plain(path: Path, mode: Literal["rb", "ab"], *, follow_links: bool = False) -> BinaryIO:
    """Open a regular file; raise OSError for anything else, without blocking.

    Args:
        path: The file; mode "ab" creates it if it is missing.
        mode: As in `open`.
        follow_links: Whether `path` itself may be a symbolic link.
    """
    flags = os.O_RDONLY if mode == "rb" else os.O_WRONLY | os.O_APPEND | os.O_CREAT
    handle = os.open(path, flags | NO_WAIT | _BINARY | (0 if follow_links else NO_FOLLOW), NEW_FILE)
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
    """Return the status of a regular file, None if there is no file."""
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
    """Sync a folder, without which a rename in it may be lost in a crash."""
    if os.name != "posix":  # other systems cannot open folders
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
