"""Mistakes of the user, as opposed to defects of the program."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the user can mend: its message is one sentence that says what to do.

    The command prints the sentence and exits with status 2, without a traceback.
    """


def unknown(kind: str, name: str, known: Iterable[str], *, listed: bool = True) -> UserError:
    """The error for a name nobody knows, with the nearest known name as a suggestion.

    >>> str(unknown("method", "onproo", ["er", "onpro"]))
    "there is no method 'onproo'; did you mean 'onpro'? Known: er, onpro."
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    rest = f" Known: {', '.join(names)}." if names and listed else ""
    return UserError(f"there is no {kind} '{name}'{hint}{rest}")
