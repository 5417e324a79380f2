"""Read the settings and recipes of methods from their files, without importing them.

A method's file imports torch, which takes seconds; a list of methods, the text of `--help` and a
mistake in the options need only its settings and what it is registered with, both of which are
plain values in its source.
"""

import ast
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from onpro import recipes
from onpro.cli.signals import importing
from onpro.errors import unknown, unknown_method
from onpro.recipes import EVERY_METHOD, Recipe, Values

FOLDER = Path(__file__).parents[1] / "methods"

LEFT_OUT = {
    "register": {},
    "register_wrapper": {"memory": "as the method", "inference": "as the method"},
}
"""Fields of `About` that the call of a decorator may leave out."""


@dataclass(frozen=True)
class Outline:
    """A method or wrapper, as lists and options need it."""

    about: Mapping[str, Any]
    """Fields of `onpro.methods.About`."""
    settings: type[Any]
    """A dataclass with its settings; not the one that the method takes."""
    recipes: Mapping[str, Recipe] = field(default_factory=dict)
    data: Mapping[str, Values] = field(default_factory=dict)
    """Values of data sets, as far as they are read; without those of every method."""


def outline(name: str) -> Outline:
    """Return the outline of a method, which may be wrapped."""
    known = outlines()
    if name in known:
        return known[name]
    if name.rpartition("-")[2] not in wrapper_outlines():
        raise unknown_method(name, known, wrapper_outlines())
    with importing():
        from onpro.methods import method
        from onpro.methods import recipes as recipes_of
    cls = method(name)
    return Outline(asdict(cls.about), cls.settings_type, recipes_of(name))


def default_settings(name: str, data: str, recipe: str | None = None) -> Any:
    """Return the settings of a method on a data set with a recipe, as `--help` shows them."""
    if name not in outlines() or not _readable():
        with importing():
            from onpro.methods import settings_for
        return settings_for(name, data, recipe)
    known, source = outline(name), data.partition(":")[0]
    if recipe is not None and recipe not in known.recipes:
        raise unknown(f"recipe of {name}", recipe, known.recipes)
    varied = known.recipes[recipe].values if recipe else {}
    values = {**EVERY_METHOD.get(source, {}), **known.data.get(source, {}), **varied}
    return known.settings(**values)


def outlines() -> dict[str, Outline]:
    """Return all methods by name, without wrapped ones.

    If they are imported already, or another package announces some, the registry is asked.
    """
    if _readable():
        return read(FOLDER, "register")
    with importing():
        from onpro.methods import methods
        from onpro.methods import recipes as recipes_of
    return {
        name: Outline(asdict(cls.about), cls.settings_type, recipes_of(name))
        for name, cls in methods().items()
    }


def wrapper_outlines() -> dict[str, Outline]:
    """Return all wrappers by name."""
    if _readable():
        return read(FOLDER, "register_wrapper")
    with importing():
        from onpro.methods import wrappers
    return {name: Outline(asdict(cls.about), cls.settings_type) for name, cls in wrappers().items()}


def _readable() -> bool:
    """Return whether the source files are there and describe all methods."""
    imported = "onpro.methods" in sys.modules or entry_points(group="onpro.methods")
    return not imported and any(FOLDER.glob("*.py"))


def read(folder: Path, decorator: str) -> dict[str, Outline]:
    """Return the classes with a decorator in the files of a folder, by registered name."""
    classes, found = _classes(folder), {}
    for call in (_registration(cls, decorator) for cls in classes.values()):
        if call is not None:
            name, settings = call.args
            about = {"name": _value(name), **LEFT_OUT[decorator]}
            about |= {str(word.arg): _value(word.value) for word in call.keywords}
            data, named = about.pop("data", {}), about.pop("recipes", {})
            for values in ("bases", "bases_on"):
                about.pop(values, None)
            kind = _settings(ast.unparse(settings), classes)
            found[about["name"]] = Outline(about, kind, named, data)
    return dict(sorted(found.items()))


@cache
def _classes(folder: Path) -> dict[str, ast.ClassDef]:
    classes: dict[str, ast.ClassDef] = {}
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes |= {part.name: part for part in tree.body if isinstance(part, ast.ClassDef)}
    return classes


def _registration(cls: ast.ClassDef, decorator: str) -> ast.Call | None:
    for call in cls.decorator_list:
        match call:
            case ast.Call(func=ast.Name(name)) if name == decorator:
                return call
    return None


def _value(expression: ast.expr) -> Any:
    """Evaluate an expression of literals and names of `onpro.recipes`."""
    return eval(ast.unparse(expression), vars(recipes))


def _settings(name: str, classes: Mapping[str, ast.ClassDef]) -> type[Any]:
    """Return a dataclass with the fields of a class and of its base classes."""
    fields = {}
    for cls in reversed(_lineage(name, classes)):
        for above, below in pairwise([*cls.body, ast.Pass()]):
            match above:
                case ast.AnnAssign(ast.Name(setting), annotation=hint, value=ast.expr() as value):
                    said = {"help": _text(below)}
                    options = field(default=ast.literal_eval(value), metadata=said)
                    fields[setting] = (setting, _type(hint), options)
    doc = ast.get_docstring(classes[name])
    return make_dataclass(name, fields.values(), namespace={"__doc__": doc})


def _lineage(name: str, classes: Mapping[str, ast.ClassDef]) -> list[ast.ClassDef]:
    """Return a class and its base classes, each before its own bases, as Python orders them."""
    cls = classes[name]
    bases = [base for kind in cls.bases for base in _lineage(ast.unparse(kind), classes)]
    last_met = dict.fromkeys(reversed(bases))
    return [cls, *reversed(last_met)]


def _type(hint: ast.expr) -> Any:
    """Evaluate an annotation of built-in types and Literal."""
    return eval(ast.unparse(hint), {"Literal": Literal})


def _text(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return " ".join(text.split())
    return None
