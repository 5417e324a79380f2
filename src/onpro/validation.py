"""Validate values against field types.

Written here because a library (msgspec, pydantic) would replace only the twenty lines of
`accepted`, for one more compiled dependency; the error messages would still be ours.
"""

import re
from contextlib import suppress
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

NAMES = {int: "a whole number", float: "a number", str: "a text in quotes", bool: "true or false"}
"""Plain types, as error messages name them."""


def accepted(value: Any, hint: Any) -> Any:
    """Return the value as a field of this type holds it: integers as floats, lists as tuples.

    Nothing else is converted; in particular, no boolean is a number.

    >>> accepted(1, float), accepted([1, 2.5], tuple[float, float])
    (1.0, (1.0, 2.5))
    >>> accepted([1, 2, 3], tuple[int, ...])
    (1, 2, 3)

    Raises:
        TypeError: if the value is not of the type.
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
        with suppress(OverflowError):  # an integer beyond all floats
            return float(value)
    if hint in (*NAMES, NoneType) and type(value) is hint:
        return value
    raise TypeError(f"not {described(hint)}: {value!r}")


def fits(value: Any, hint: Any) -> bool:
    """Return whether a field of this type accepts the value."""
    try:
        accepted(value, hint)
    except TypeError:
        return False
    return True


def described(hint: Any) -> str:
    """Describe a type in an error message.

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


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""Of a method: a word of the command, and of file names."""

RESERVED = frozenset(
    {
        *("at_once", "base", "batch_size", "checkpoint_every", "class_order", "data", "data_dir"),
        *("deterministic", "device", "encoder_sha256", "engine", "evaluations", "fresh", "gpus"),
        *("hide_boundaries", "image_size", "json", "keep_memory", "keep_model", "limit_per_class"),
        *("mean", "memory", "method", "method_file", "model", "on", "out", "partition"),
        *("precision", "probe", "probe_every", "ray_address", "recipe", "seed", "seeds"),
        *("settings", "shortcut", "shortcut_size", "shortcut_strength", "slurm", "std", "stream"),
        *("stream_file", "task_networks", "tasks", "tensorboard", "threads", "time", "validation"),
        *("wandb", "workers"),
    }
)
"""Options of every run and parameters of every classifier: no setting can have their names."""


def require_options(settings: type[Any], base: type[Any]) -> None:
    """Refuse a class whose fields cannot be options of the command and of the classifier."""
    said = settings.__qualname__
    if not issubclass(settings, base):
        raise TypeError(f"{said} must be derived from {base.__name__}")
    if "__dataclass_fields__" not in vars(settings):
        raise TypeError(
            f"{said} must be a dataclass: put @dataclass(frozen=True) directly above it"
        )
    for option in fields(settings):
        if option.name in RESERVED:
            raise ValueError(
                f"{said} cannot have a setting {option.name!r}, which every run has: rename it"
            )
        if option.default is option.default_factory is MISSING:
            raise TypeError(f"the setting {option.name!r} of {said} needs a default")


def require_name(name: str) -> None:
    """Refuse a name that a method cannot have."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"the name of a method is made of letters, digits, '-', '_', '.' and '+': {name!r}"
        )
