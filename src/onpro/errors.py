"""Errors caused by the user, and helpers for their messages."""

import difflib
from collections.abc import Collection, Iterable


class UserError(Exception):
    """An error that the user can fix; its message is one sentence that says how.

    The command prints the message and exits with status 2, without a traceback.
    """


def unknown(
    kind: str, name: str, known: Iterable[str], *, listed: bool = True, see: str = ""
) -> UserError:
    """Return the error for an unknown name, with the closest known name as a suggestion.

    Args:
        kind: What the name is of.
        name: The unknown name.
        known: Names that are known.
        listed: Whether to list them.
        see: Command that lists them, suggested if no known name is close.

    >>> str(unknown("method", "onproo", ["er", "onpro"]))
    "there is no method 'onproo'; did you mean 'onpro'? Known: er, onpro."
    """
    names = sorted(known)
    words = {known.lower().lstrip("-"): known for known in names}
    near = difflib.get_close_matches(name.lower().lstrip("-"), words, n=1, cutoff=0.6)
    hint = f"; did you mean '{words[near[0]]}'?" if near else f"; see {see}." if see else "."
    rest = f" Known: {', '.join(names)}." if names and listed else ""
    return UserError(f"there is no {kind} '{name}'{hint}{rest}")


def unknown_method(name: str, methods: Collection[str], wrappers: Collection[str]) -> UserError:
    """Return the error for an unknown method, or for an unknown wrapper of a method.

    >>> str(unknown_method("er-rott", ["er", "erace"], ["kd", "rot"]))
    "there is no wrapper 'rott'; did you mean 'rot'? Known: kd, rot."
    >>> str(unknown_method("er-ace", ["er", "erace"], ["kd", "rot"]))
    "there is no method 'er-ace'; did you mean 'erace'? Known: er, erace."
    """
    base, _, wrapper = name.rpartition("-")
    if base in methods and not difflib.get_close_matches(name, methods, cutoff=0.8):
        return unknown("wrapper", wrapper, wrappers)
    return unknown("method", name, methods)


def counted(number: int, thing: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "image"), counted(20, "image")
    ('1 image', '20 images')
    """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
