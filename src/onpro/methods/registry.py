"""The methods by name: those of the package, those other packages announce, and wrapped ones."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.metadata import entry_points
from typing import Any, TypeVar

from onpro.errors import UserError, unknown
from onpro.methods.base import About, Method
from onpro.methods.settings import Settings
from onpro.recipes import EVERY_METHOD, Recipe, Values
from onpro.validation import RESERVED, require_name

AnyMethod = Method[Any]
M = TypeVar("M", bound=AnyMethod)


@dataclass(frozen=True)
class Entry:
    """A registered method, its values for data sets and its recipes."""

    cls: type[AnyMethod]
    data: Mapping[str, Values]
    recipes: Mapping[str, Recipe]


_METHODS: dict[str, Entry] = {}
_WRAPPERS: dict[str, Entry] = {}


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
    data: Mapping[str, Values] | None = None,
    recipes: Mapping[str, Recipe] | None = None,
) -> Callable[[type[M]], type[M]]:
    """Make a method known by a name: the command lists it and offers its settings as options.

    A package of its own announces its methods with an entry point of the group `onpro.methods`
    that names the module or class. `data` holds the values that a data set gives to settings; what
    it does not name stays at the value of `EVERY_METHOD`, or the default. `recipes` are named
    variations of the settings, for `--recipe`. The other arguments are shown by `onpro methods`,
    see `About`.
    """
    about = About(name, title, paper, year, memory, inference, images_per_step)
    return _entering(_METHODS, about, settings, data or {}, recipes or {})


def register_wrapper(
    name: str,
    settings: type[Settings],
    *,
    title: str,
    paper: str,
    year: int,
    images_per_step: str,
) -> Callable[[type[M]], type[M]]:
    """Make a variation of any method known: `METHOD-NAME` is the method `METHOD` wrapped in it.

    A wrapper is a class that is put in front of a method's own class, and overrides what it
    changes; `terms`, as a rule. The wrapped method has the settings of both.
    """
    about = About(name, title, paper, year, "as the method", "as the method", images_per_step)
    return _entering(_WRAPPERS, about, settings, {}, {})


def _entering(
    entries: dict[str, Entry],
    about: About,
    settings: type[Settings],
    data: Mapping[str, Values],
    recipes: Mapping[str, Recipe],
) -> Callable[[type[M]], type[M]]:
    require_name(about.name)
    _require_options(settings)
    for values in (*data.values(), *(recipe.values for recipe in recipes.values())):
        strange = sorted(values.keys() - _names(settings))
        if strange:
            raise ValueError(f"{settings.__qualname__} has no setting {strange[0]!r} to set")

    def enter(cls: type[M]) -> type[M]:
        known = entries[about.name].cls if about.name in entries else cls
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"the name '{about.name}' is already registered")
        cls.about = about
        cls.settings_type = settings
        entries[about.name] = Entry(cls, data, recipes)
        _wrapped.cache_clear()
        return cls

    return enter


def _require_options(settings: type[Settings]) -> None:
    """Refuse a class of settings that the command and the classifier could not offer."""
    said = settings.__qualname__
    if not issubclass(settings, Settings):
        raise TypeError(f"{said} must be a class of settings: derive it from Settings")
    if "__dataclass_fields__" not in vars(settings):
        raise TypeError(f"{said} must be a dataclass: put @dataclass(frozen=True) above it")
    taken = RESERVED & _names(settings)
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
    """All registered methods by name, without wrapped ones."""
    _announced_elsewhere()
    return {name: entry.cls for name, entry in sorted(_METHODS.items())}


def wrappers() -> dict[str, type[AnyMethod]]:
    """All registered wrappers by name."""
    _announced_elsewhere()
    return {name: entry.cls for name, entry in sorted(_WRAPPERS.items())}


def method(name: str) -> type[AnyMethod]:
    """The method of that name; `METHOD-WRAPPER` is a wrapped one."""
    return _entry(name).cls


def recipes(name: str) -> Mapping[str, Recipe]:
    """The named variations of a method."""
    return _entry(name).recipes


def data_values(name: str, data: str) -> dict[str, Any]:
    """The values that a data set gives to a method's settings."""
    source = data.partition(":")[0]
    return {**EVERY_METHOD.get(source, {}), **_entry(name).data.get(source, {})}


def settings_for(name: str, data: str, recipe: str | None = None) -> Settings:
    """The defaults, then the data set's values, then those of the recipe."""
    values = data_values(name, data)
    if recipe is not None:
        known = recipes(name)
        if recipe not in known:
            raise unknown(f"recipe of {name}", recipe, known)
        values |= known[recipe].values
    return replace(method(name).settings_type(), **values)


def _entry(name: str) -> Entry:
    _announced_elsewhere()
    if name in _METHODS:
        return _METHODS[name]
    base, _, wrapper = name.rpartition("-")
    if wrapper not in _WRAPPERS or not base:
        raise unknown("method", name, _METHODS)
    return _wrapped(base, wrapper)


@cache
def _wrapped(base_name: str, wrapper_name: str) -> Entry:
    """A method's class behind that of a wrapper."""
    base, wrapper = _entry(base_name), _WRAPPERS[wrapper_name].cls
    name = f"{base_name}-{wrapper_name}"
    if not hasattr(base.cls, "terms"):
        fitting = (
            known
            for known, entry in _METHODS.items()
            if hasattr(entry.cls, "terms") and not _shared(entry.cls, wrapper)
        )
        raise UserError(
            f"{wrapper_name} cannot wrap {base_name}, whose loss is not available apart from its "
            f"step: take {', '.join(sorted(fitting))}."
        )
    shared = _shared(base.cls, wrapper)
    if shared:
        setting = sorted(shared)[0].replace("_", " ")
        raise UserError(f"{wrapper_name} cannot wrap {base_name}, which has its own {setting}.")
    both = {
        "__doc__": f"Settings of {name}.",
        "__reduce__": lambda self: (_settings, (name, vars(self))),  # for another process
    }
    settings = type(f"{name}-settings", (base.cls.settings_type, wrapper.settings_type), both)
    about = replace(
        base.cls.about,
        name=name,
        title=f"{base.cls.about.title}, {wrapper.about.title}",
        images_per_step=wrapper.about.images_per_step,
    )
    given = {"about": about, "settings_type": dataclass(frozen=True)(settings)}
    return Entry(type(name, (wrapper, base.cls), given), base.data, base.recipes)


def _shared(base: type[AnyMethod], wrapper: type[AnyMethod]) -> set[str]:
    """Return the settings that both have of their own, so that they cannot be combined."""
    return _names(base.settings_type) & _names(wrapper.settings_type) - _names(Settings)


def _settings(name: str, values: Values) -> Settings:
    return method(name).settings_type(**values)


def _names(settings: type[Settings]) -> set[str]:
    return {field.name for field in fields(settings)}
