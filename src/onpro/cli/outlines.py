"""The methods as their files describe them, read without importing any.

A method's file imports torch, which takes seconds; a list of methods, the text of `--help` and a
mistake in the options need only its settings and what it is registered with, both of which are
plain values in its source.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, make_dataclass
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from onpro.cli.signals import importing
from onpro.errors import unknown

FOLDER = Path(__file__).parents[1] / "methods"


@dataclass(frozen=True)
class Outline:
    """A method, as far as lists and options go."""

    about: Mapping[str, Any]
    """Fields of `onpro.methods.About`."""
    settings: type[Any]
    """A dataclass with its settings; not the one that the method takes."""


def outline(name: str) -> Outline:
    """The method of that name."""
    known = outlines()
    if name not in known:
        raise unknown("method", name, known)
    return known[name]


def outlines() -> dict[str, Outline]:
    """All methods by name.

    Where they are imported anyway, or another package announces some, the registry is asked.
    """
    if "onpro.methods" not in sys.modules and not entry_points(group="onpro.methods"):
        found = read(FOLDER)
        if found:  # else there are no sources here
            return found
    with importing():
        from onpro.methods import methods
    return {name: Outline(asdict(cls.about), cls.settings_type) for name, cls in methods().items()}


def read(folder: Path) -> dict[str, Outline]:
    """The methods registered in the files of a folder, by name."""
    classes: dict[str, ast.ClassDef] = {}
    for path in folder.glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        classes |= {part.name: part for part in tree.body if isinstance(part, ast.ClassDef)}
    found = {}
    for call in map(_registration, classes.values()):
        if call is not None:
            named, settings = call.args
            about = {"name": ast.literal_eval(named)}
            about |= {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
            found[about["name"]] = Outline(about, _settings(ast.unparse(settings), classes))
    return dict(sorted(found.items()))


def _registration(cls: ast.ClassDef) -> ast.Call | None:
    for decorator in cls.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name("register")):
                return decorator
    return None


def _settings(name: str, classes: Mapping[str, ast.ClassDef]) -> type[Any]:
    """A dataclass with the fields of the class of that name and of those it derives from."""
    fields = {}
    for cls in reversed(list(_lineage(name, classes))):
        for above, below in pairwise([*cls.body, ast.Pass()]):
            match above:
                case ast.AnnAssign(ast.Name(setting), annotation=hint, value=ast.expr() as value):
                    said = {"help": _text(below)}
                    options = field(default=ast.literal_eval(value), metadata=said)
                    fields[setting] = (setting, _type(hint), options)
    doc = ast.get_docstring(classes[name])
    return make_dataclass(name, fields.values(), namespace={"__doc__": doc})


def _lineage(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """A class, its base, and so on."""
    while True:
        cls = classes[name]
        yield cls
        if not cls.bases:
            return
        name = ast.unparse(cls.bases[0])


def _type(hint: ast.expr) -> Any:
    """What an annotation means: built-in types, and choices."""
    return eval(ast.unparse(hint), {"Literal": Literal})


def _text(statement: ast.stmt) -> str | None:
    match statement:
        case ast.Expr(ast.Constant(str(text))):
            return " ".join(text.split())
    return None
