"""Methods in files of the user's own: `./my_method.py`, or `./my_method.py:NAME` of several."""

from pathlib import Path

from onpro.errors import UserError, unknown
from onpro.methods.registry import AnyMethod, method, methods
from onpro.user_file import UserFile, choose, file_of, load, split_file


def load_file(path: str | Path) -> dict[str, type[AnyMethod]]:
    """Import a Python file and return the methods it registers, by name; see `user_file.load`."""
    return load(path, "method", methods)


def resolve(name: str) -> str:
    """Return the name of a method; if it is given by its file, import that first."""
    parts = split_file(name)
    if parts is None:
        return name
    path, chosen = parts
    found = load_file(path)
    known = choose(path, chosen, "method", found)
    if known is not None:
        return known
    if not any(chosen.startswith(f"{name}-") for name in found):
        raise unknown(f"method in {path}", chosen, found)
    return method(chosen).about.name  # a wrapped one, unless that is refused


def method_file_of(name: str) -> UserFile | None:
    """Return the file that a method, wrapped or not, comes from; None: a package's module."""
    try:
        return file_of(method(name))
    except UserError:  # no such method
        return None
