"""The methods by name: those of the package, those other packages announce, and wrapped ones."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from inspect import isabstract
from typing import Any, TypeVar

from onpro.errors import UserError, unknown, unknown_method
from onpro.methods.base import About, Method
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper
from onpro.plugins import load_plugins
from onpro.recipes import EVERY_METHOD, Recipe, Values
from onpro.validation import require_name, require_options

AnyMethod = Method[Any]
M = TypeVar("M", bound=AnyMethod)
W = TypeVar("W", bound=Wrapper[Any])


@dataclass(frozen=True)
class Entry:
    """A registered method, its values for data sets and its recipes."""

    cls: type[AnyMethod]
    data: Mapping[str, Values]
    recipes: Mapping[str, Recipe]
    values: Values = field(default_factory=dict)
    """Values on all data sets, of a wrapped method."""


@dataclass(frozen=True)
class WrapperEntry:
    """A registered wrapper, and its values for methods and data sets."""

    cls: type[Wrapper[Any]]
    bases: Mapping[str, Values]
    data: Mapping[str, Values]
    bases_on: Mapping[tuple[str, str], Values]


_METHODS: dict[str, Entry] = {}
_WRAPPERS: dict[str, WrapperEntry] = {}


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
    require_name(name)
    require_options(settings, Settings)
    given = (data or {}, recipes or {})
    for values in (*given[0].values(), *(recipe.values for recipe in given[1].values())):
        _require_settings(settings, values)

    def enter(cls: type[M]) -> type[M]:
        if isabstract(cls):
            missing = ", ".join(sorted(cls.__abstractmethods__))
            raise TypeError(f"{cls.__qualname__} does not define {missing}")
        _require_new(cls, name, _METHODS)
        cls.about, cls.settings_type = about, settings
        _METHODS[name] = Entry(cls, *given)
        _wrapped.cache_clear()
        return cls

    return enter


def register_wrapper(
    name: str,
    settings: type[Settings],
    *,
    title: str,
    paper: str,
    year: int,
    images_per_step: str,
    inference: str = "as the method",
    bases: Mapping[str, Values] | None = None,
    data: Mapping[str, Values] | None = None,
    bases_on: Mapping[tuple[str, str], Values] | None = None,
) -> Callable[[type[W]], type[W]]:
    """Make a variation of any method known: `METHOD-NAME` is the method `METHOD` wrapped in it.

    A wrapper is a class that is put in front of a method's own class, and overrides what it
    changes; `terms`, as a rule. The wrapped method has the settings of both. `bases` holds the
    values that a method's settings and the wrapper's have together, `data` those of the wrapper's
    settings on a data set, `bases_on` those of a method's and the wrapper's on a data set, by the
    names of both.
    """
    about = About(name, title, paper, year, "as the method", inference, images_per_step)
    require_name(name)
    require_options(settings, Settings)
    for values in (data or {}).values():
        _require_settings(settings, values)

    def enter(cls: type[W]) -> type[W]:
        _require_new(cls, name, _WRAPPERS)
        cls.about, cls.settings_type = about, settings
        _WRAPPERS[name] = WrapperEntry(cls, bases or {}, data or {}, bases_on or {})
        _wrapped.cache_clear()
        return cls

    return enter


def _require_new(
    cls: type[AnyMethod], name: str, entries: Mapping[str, Entry | WrapperEntry]
) -> None:
    """Refuse a name that another class has."""
    known = entries[name].cls if name in entries else cls
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"the name '{name}' is already registered: choose another")


def _require_settings(settings: type[Settings], values: Values) -> None:
    """Refuse values of settings that do not exist."""
    strange = sorted(values.keys() - _names(settings))
    if strange:
        raise ValueError(f"{settings.__qualname__} has no setting {strange[0]!r} to set")


def methods() -> dict[str, type[AnyMethod]]:
    """All registered methods by name, without wrapped ones."""
    load_plugins("onpro.methods")
    return {name: entry.cls for name, entry in sorted(_METHODS.items())}


def wrappers() -> dict[str, type[Wrapper[Any]]]:
    """All registered wrappers by name."""
    load_plugins("onpro.methods")
    return {name: entry.cls for name, entry in sorted(_WRAPPERS.items())}


def method(name: str) -> type[AnyMethod]:
    """The method of that name; `METHOD-WRAPPER` is a wrapped one."""
    return _entry(name).cls


def recipes(name: str) -> Mapping[str, Recipe]:
    """The named variations of a method."""
    return _entry(name).recipes


def data_values(name: str, data: str) -> dict[str, Any]:
    """The values that a data set gives to a method's settings."""
    source, entry = data.partition(":")[0], _entry(name)
    return {**EVERY_METHOD.get(source, {}), **entry.values, **entry.data.get(source, {})}


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
    load_plugins("onpro.methods")
    if name in _METHODS:
        return _METHODS[name]
    base, _, wrapper = name.rpartition("-")
    if wrapper not in _WRAPPERS or not base:
        raise unknown_method(name, _METHODS, _WRAPPERS)
    return _wrapped(base, wrapper)


@cache
def _wrapped(base_name: str, wrapper_name: str) -> Entry:
    """A method's class behind that of a wrapper."""
    base, wrapping = _entry(base_name), _WRAPPERS[wrapper_name]
    wrapper, name = wrapping.cls, f"{base_name}-{wrapper_name}"
    refusal = _refusal(wrapper, base.cls)
    if refusal:
        fitting = [known for known, entry in _METHODS.items() if not _refusal(wrapper, entry.cls)]
        raise UserError(
            f"{wrapper_name} cannot wrap {base_name}, {refusal}: take {', '.join(sorted(fitting))}."
        )
    common = {
        "__doc__": f"Settings of {name}.",
        "__reduce__": lambda self: (_settings, (name, vars(self))),  # for another process
    }
    settings = type(f"{name}-settings", (base.cls.settings_type, wrapper.settings_type), common)
    about = replace(
        base.cls.about,
        name=name,
        title=f"{base.cls.about.title}, {wrapper.about.title}",
        images_per_step=wrapper.about.images_per_step,
        inference=base.cls.about.inference
        if wrapper.about.inference == "as the method"
        else wrapper.about.inference,
    )
    both: type[Settings] = dataclass(frozen=True)(settings)
    method_name = base_name
    while method_name not in _METHODS:  # it may have a hyphen of its own
        method_name = method_name.rpartition("-")[0]
    values = {**base.values, **wrapping.bases.get(method_name, {})}
    own = {data: given for (base, data), given in wrapping.bases_on.items() if base == method_name}
    data = {
        source: {
            **base.data.get(source, {}),
            **wrapping.data.get(source, {}),
            **own.get(source, {}),
        }
        for source in base.data.keys() | wrapping.data.keys() | own.keys()
    }
    for checked in (values, *data.values()):
        _require_settings(both, checked)
    given = {
        "about": about,
        "settings_type": both,
        "wrapped": base.cls,
        "has_plain_loss": base.cls.has_plain_loss and wrapper.keeps_loss,
    }
    recipes = base.recipes
    if base_name in _METHODS:  # what recipes say of papers holds for the method alone
        recipes = {
            recipe: found.varied(f"of {base_name}: {found.about}")
            for recipe, found in base.recipes.items()
        }
    return Entry(type(name, (wrapper, base.cls), given), data, recipes, values)


def _refusal(wrapper: type[Wrapper[Any]], base: type[AnyMethod]) -> str | None:
    """Return why a wrapper cannot wrap a method, or None if it can."""
    shared = _names(base.settings_type) & _names(wrapper.settings_type) - _names(Settings)
    if shared:  # settings that both have of their own
        return f"which has its own {sorted(shared)[0].replace('_', ' ')}"
    if issubclass(base, wrapper):
        return "which has it already"
    return wrapper.refusal(base)


def _settings(name: str, values: Values) -> Settings:
    return method(name).settings_type(**values)


def _names(settings: type[Settings]) -> set[str]:
    return {field.name for field in fields(settings)}
