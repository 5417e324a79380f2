"""Python files of the user's own that register methods or streams.

`./mine.py` names the only method or stream that a file registers, `./mine.py:NAME` one of several.
Importing this module does not import torch.
"""

import hashlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from onpro.errors import UserError
from onpro.files import expand_home, read_plain

C = TypeVar("C", bound=type[Any])


class UserFile(NamedTuple):
    """A file that registers methods or streams, as it was when it was imported."""

    path: Path
    digest: str
    """SHA-256 of its content."""

    def require(self) -> None:
        """Import the file if that is still to be done; refuse one that has changed or is gone."""
        if not self.path.exists():
            raise UserError(f"the file {self.path}, which the run needs, is gone: put it back.")
        if _digest(_read(self.path)) != self.digest:
            raise UserError(
                f"{self.path} has changed since the run began: undo that, or start another run."
            )
        _import(self.path)


_LOADED: dict[str, UserFile] = {}
"""The imported files by the names of their modules."""


def split_file(name: str) -> tuple[Path, str] | None:
    """Split PATH.py or PATH.py:NAME into a path and a name, if any; None: it names no file.

    >>> split_file("./mine.py:OnlyReplay"), split_file("mine.py"), split_file("er")
    ((PosixPath('mine.py'), 'OnlyReplay'), (PosixPath('mine.py'), ''), None)
    """
    parts = re.fullmatch(r"(.+\.py)(?::([^:/\\]*))?", name, re.DOTALL)
    return (Path(parts[1]), parts[2] or "") if parts else None


def load(path: str | Path, thing: str, registered: Callable[[], Mapping[str, C]]) -> dict[str, C]:
    """Import a Python file and return the classes it registers, by name.

    A file is imported once, unless it has changed since. Modules beside it can be imported.

    Args:
        path: the file.
        thing: what it is to register, for messages.
        registered: returns all registered classes by name.

    Raises:
        UserError: if the file cannot be imported, with the line, or registers no such thing.
    """
    located = _located(path)
    module = _import(located)
    found = {name: cls for name, cls in registered().items() if cls.__module__ == module}
    if not found:
        raise UserError(f"{located} registers no {thing}: put @register(…) above its class.")
    return found


def choose(path: Path, chosen: str, thing: str, found: Mapping[str, type[Any]]) -> str | None:
    """Return the name of what is meant of a file: by its name or class, else the only one.

    None: nothing of the file has the given name.
    """
    if not chosen and len(found) > 1:
        first = next(iter(found))
        raise UserError(
            f"{path} has several {thing}s, {', '.join(found)}: name one, as in {path}:{first}."
        )
    if chosen in found:
        return chosen
    return next((name for name, cls in found.items() if chosen in ("", cls.__name__)), None)


def file_of(cls: type[Any]) -> UserFile | None:
    """Return the file that a class, or one of its base classes, comes from; None: a package."""
    return next((_LOADED[c.__module__] for c in cls.__mro__ if c.__module__ in _LOADED), None)


def _import(path: Path) -> str:
    """Import a file unless it is imported as it is, and return the name of its module."""
    content = _read(path)
    file = UserFile(path, _digest(content))
    place = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
    name = f"onpro_file_{re.sub(r'[^A-Za-z0-9]+', '_', path.stem)}_{place}"
    if _LOADED.get(name) != file:
        _execute(name, path, content)
        _LOADED[name] = file
    return name


def _located(path: str | Path) -> Path:
    """Return the one path by which a file is known, from whatever folder and by whatever link."""
    try:
        return Path(os.path.realpath(expand_home(path)))
    except ValueError as error:  # a null byte
        raise UserError(f"{path} cannot be used: {error}.") from None


def _read(path: Path) -> bytes:
    try:
        return read_plain(path)
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _execute(name: str, path: Path, content: bytes) -> None:
    """Run the file as a module of that name."""
    module = ModuleType(name)
    module.__file__ = str(path)
    before = sys.modules.get(name)
    sys.modules[name] = module  # dataclasses look for their module there
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        exec(compile(content, str(path), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise UserError(_told(error, path)) from error


def _told(error: BaseException, path: Path) -> str:
    """Return what is wrong with a file, and in which line."""
    said = f"{type(error).__name__}: {error}"
    lines = [
        at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(path)
    ]
    line = lines[-1] if lines else None
    if isinstance(error, SyntaxError) and error.filename == str(path):
        said, line = error.msg, error.lineno
    where = f"{path}, line {line}" if line else str(path)
    return f"{where}: {' '.join(said.split()).rstrip('.')}."
