"""Methods in files of the user's own: `./my_method.py`, or `./my_method.py:NAME` of several."""

import hashlib
import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from onpro.errors import UserError, unknown
from onpro.files import read_plain
from onpro.methods.registry import AnyMethod, method, methods
from onpro.validation import split_method


class MethodFile(NamedTuple):
    """A file that registers methods, as it was when it was imported."""

    path: Path
    digest: str
    """SHA-256 of its content."""

    def require(self) -> None:
        """Import the file if that is still to be done; refuse one that has changed or is gone."""
        if not self.path.exists():
            raise UserError(f"the file of its method, {self.path}, is gone: put it back.")
        if _digest(_read(self.path)) != self.digest:
            raise UserError(
                f"{self.path} has changed since the run began: undo that, or start another run."
            )
        load_file(self.path)


_LOADED: dict[str, MethodFile] = {}
"""The imported files by the names of their modules."""


def load_file(path: str | Path) -> dict[str, type[AnyMethod]]:
    """Import a Python file and return the methods it registers, by name.

    A file is imported once, unless it has changed since. Modules beside it can be imported.

    Raises:
        UserError: if the file cannot be imported, with the line, or registers no method.
    """
    path = _located(path)
    content = _read(path)
    file = MethodFile(path, _digest(content))
    place = hashlib.sha256(str(path).encode(errors="surrogateescape")).hexdigest()[:8]
    name = f"onpro_method_{re.sub(r'[^A-Za-z0-9]+', '_', path.stem)}_{place}"
    if _LOADED.get(name) != file:
        _execute(name, path, content)
        _LOADED[name] = file
    found = {known: cls for known, cls in methods().items() if cls.__module__ == name}
    if not found:
        raise UserError(f"{path} registers no method: put @register(…) above its class.")
    return found


def resolve(name: str) -> str:
    """Return the name of a method; if it is given by its file, import that first."""
    parts = split_method(name)
    if parts is None:
        return name
    path, chosen = parts
    found = load_file(path)
    if not chosen:
        if len(found) > 1:
            first = next(iter(found))
            raise UserError(
                f"{path} has several methods, {', '.join(found)}: name one, as in {path}:{first}."
            )
        return next(iter(found))
    if chosen in found:
        return chosen
    named = [known for known, cls in found.items() if cls.__name__ == chosen]
    if named:
        return named[0]
    wrapped = file_of(chosen)
    if wrapped is None or wrapped.path != _located(path):
        raise unknown(f"method in {path}", chosen, found)
    return chosen


def file_of(name: str) -> MethodFile | None:
    """Return the file that a method, wrapped or not, comes from; None: a package's module."""
    try:
        classes = method(name).__mro__
    except UserError:  # no such method
        return None
    return next((_LOADED[c.__module__] for c in classes if c.__module__ in _LOADED), None)


def _located(path: str | Path) -> Path:
    """Return the one path by which a file is known, from whatever folder and by whatever link."""
    try:
        return Path(os.path.realpath(Path(path).expanduser()))
    except (RuntimeError, ValueError) as error:  # no such user, or a null byte
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
