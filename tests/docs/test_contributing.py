"""What CONTRIBUTING.md shows works as it stands there."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from onpro.data import registry as data_registry
from onpro.methods import registry as method_registry

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"


def test_the_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_registry, "_METHODS", dict(method_registry._METHODS))
    monkeypatch.setattr(data_registry, "_sources", dict(data_registry._sources))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) >= 4
    module = ModuleType("contributing")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
