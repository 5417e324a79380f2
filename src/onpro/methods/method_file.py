"""Methods and wrappers in files of the user's own.

`./my_method.py` is the only method of a file, `./my_method.py:NAME` one of several,
`./my_wrapper.py:er-NAME` the method er with a wrapper of the file.
"""

from pathlib import Path

from onpro.errors import UserError, unknown
from onpro.methods.registry import AnyMethod, method, methods, wrappers
from onpro.user_file import UserFile, choose, file_of, load, split_file


def load_file(path: str | Path) -> dict[str, type[AnyMethod]]:
    """Import a Python file and return the methods it registers, by name; see `user_file.load`."""
    return load(path, "method", methods)


def resolve(name: str) -> str:
    """Return the name of a method; if it is given by its file, import that first.

    Of a file with a wrapper, the name is that of a method with this wrapper.
    """
    parts = split_file(name)
    if parts is None:
        return name
    path, chosen = parts
    found = load(path, "method", lambda: methods() | wrappers())
    own = {name: cls for name, cls in found.items() if name in methods()}
    around = [name for name in found if name not in own]
    known = choose(path, chosen, "method", own) if own else None
    if known is not None:
        return known
    if any(chosen.startswith(f"{name}-") for name in own) or any(
        f"-{name}-" in f"{chosen}-" for name in around
    ):
        return method(chosen).about.name  # a wrapped one, unless that is refused
    if not own:
        raise UserError(
            f"{path} has a wrapper: name a method that it wraps, as in {path}:er-{around[0]}."
        )
    raise unknown(f"method in {path}", chosen, own)


def method_file_of(name: str) -> UserFile | None:
    """Return the file that a method, wrapped or not, comes from; None: a package's module."""
    try:
        return file_of(method(name))
    except UserError:  # no such method
        return None
