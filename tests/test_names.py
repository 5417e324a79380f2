"""One name for one thing."""

import ast
import importlib
import pkgutil
from collections import Counter
from pathlib import Path
from types import ModuleType

import onpro

SOURCE = Path(onpro.__file__).parent


def test_no_package_exports_a_name_of_its_modules() -> None:
    for package in pkgutil.walk_packages(onpro.__path__, "onpro."):
        if package.ispkg:
            imported = importlib.import_module(package.name)
            for module in pkgutil.iter_modules(imported.__path__):
                importlib.import_module(f"{package.name}.{module.name}")
                found = getattr(imported, module.name)
                assert isinstance(found, ModuleType), f"{package.name}.{module.name}"


def test_no_two_classes_have_one_name() -> None:
    names = [
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    twice = {name for name, times in Counter(names).items() if times > 1}
    assert twice <= {"Command"}, "every subcommand has its options in a class of this name"
