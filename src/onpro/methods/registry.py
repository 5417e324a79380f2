"""The methods by name: those of the package, and those of any package that announces its own."""

import warnings
from collections.abc import Callable
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from onpro.errors import unknown
from onpro.methods.base import About, Method
from onpro.methods.settings import Settings

AnyMethod = Method[Any]
M = TypeVar("M", bound=AnyMethod)

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
    """

    def enter(cls: type[M]) -> type[M]:
        known = _METHODS.get(name, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"two methods want the name '{name}'")
        cls.about = About(name, title, paper, year, memory, inference, images_per_step)
        cls.settings_type = settings
        _METHODS[name] = cls
        return cls

    return enter


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
