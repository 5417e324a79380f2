"""The methods by name: those of the package, and those of any package that announces its own."""

import re
import warnings
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from onpro.errors import unknown
from onpro.methods.base import About, Method
from onpro.methods.settings import Settings

AnyMethod = Method[Any]
M = TypeVar("M", bound=AnyMethod)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
"""A word of the command, and of the names of files."""

RESERVED = frozenset(
    {
        "at_once",
        "batch_size",
        "checkpoint_every",
        "class_order",
        "data",
        "data_dir",
        "deterministic",
        "device",
        "engine",
        "fresh",
        "image_size",
        "json",
        "limit_per_class",
        "mean",
        "memory",
        "method",
        "out",
        "precision",
        "recipe",
        "seed",
        "seeds",
        "settings",
        "std",
        "tasks",
        "tensorboard",
        "threads",
        "wandb",
    }
)
"""Options of every run and parameters of every classifier: no setting can have their names."""

_METHODS: dict[str, type[AnyMethod]] = {}


def register(
    name: str,
    settings: type[Settings],
    *,
    title: str,
    paper: str,
    year: int,
    memory: str,
    inference: str,
    images_per_step: str,
) -> Callable[[type[M]], type[M]]:
    """Make a method known by a name: the command lists it and offers its settings as options.

    A package of its own announces its methods with an entry point of the group `onpro.methods`
    that names the module or class.

    Raises:
        TypeError: if the settings are no dataclass derived from `Settings`.
        ValueError: if the name, or that of a setting, cannot be one.
    """
    _require_name(name)
    _require_options(settings)

    def enter(cls: type[M]) -> type[M]:
        known = _METHODS.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"two methods want the name '{name}'")
        cls.about = About(name, title, paper, year, memory, inference, images_per_step)
        cls.settings_type = settings
        _METHODS[name] = cls
        return cls

    return enter


def _require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise ValueError(
            f"the name of a method is made of letters, digits, '-', '_', '.' and '+': {name!r}"
        )


def _require_options(settings: type[Settings]) -> None:
    """Refuse a class of settings that the command and the classifier could not offer."""
    said = settings.__qualname__
    if not issubclass(settings, Settings):
        raise TypeError(f"{said} must be a class of settings: derive it from Settings")
    if "__dataclass_fields__" not in vars(settings):
        raise TypeError(f"{said} must be a dataclass: put @dataclass(frozen=True) above it")
    taken = RESERVED & {field.name for field in fields(settings)}
    if taken:
        raise ValueError(
            f"{said} cannot have a setting {sorted(taken)[0]!r}, which every run has: rename it"
        )


@cache
def _announced_elsewhere() -> None:
    for entry in entry_points(group="onpro.methods"):
        try:
            entry.load()
        except Exception as error:  # a broken package must not take the other methods with it
            warnings.warn(f"methods of {entry.value} left out: {error!r}", stacklevel=2)


def methods() -> dict[str, type[AnyMethod]]:
    """All known methods by name."""
    _announced_elsewhere()
    return dict(sorted(_METHODS.items()))


def method(name: str) -> type[AnyMethod]:
    """The method of that name."""
    known = methods()
    if name not in known:
        raise unknown("method", name, known)
    return known[name]
