"""Values that somebody wrote, against the types of the fields they are for."""

from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

NAMES = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}


def accepted(value: Any, hint: Any) -> Any:
    """The value as a field of that type holds it; a `TypeError` where it cannot.

    >>> accepted(1, float), accepted([1, 2.5], tuple[float, float])
    (1.0, (1.0, 2.5))
    >>> accepted([1, 2, 3], tuple[int, ...])
    (1, 2, 3)
    """
    options = get_args(hint)
    origin = get_origin(hint)
    if origin is Literal and any(value == o and type(value) is type(o) for o in options):
        return value
    if origin in (Union, UnionType):
        for option in options:
            if fits(value, option):
                return accepted(value, option)
    if origin is tuple and options[-1:] == (...,) and isinstance(value, (list, tuple)):
        return tuple(accepted(part, options[0]) for part in value)
    if origin is tuple and isinstance(value, (list, tuple)) and len(value) == len(options):
        return tuple(map(accepted, value, options))
    if hint is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        with suppress(OverflowError):  # a whole number beyond all floats
            return float(value)
    if hint in (*NAMES, NoneType) and type(value) is hint:
        return value
    raise TypeError(f"not {described(hint)}: {value!r}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a field of that type can hold the value."""
    try:
        accepted(value, hint)
    except TypeError:
        return False
    return True


def described(hint: Any) -> str:
    """A type, as one says it to people.

    >>> described(int | None), described(Literal["a", "b"]), described(tuple[float, float])
    ('a whole number', "'a' or 'b'", '[a number, a number]')
    >>> described(tuple[int, ...])
    '[a whole number, …]'
    """
    options = [option for option in get_args(hint) if option is not NoneType]
    if get_origin(hint) is tuple and options[-1:] == [...]:
        return f"[{described(options[0])}, …]"
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, options))
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(map(described, options))
    if get_origin(hint) is tuple:
        return f"[{', '.join(map(described, options))}]"
    return NAMES.get(hint, str(hint))
