"""What the pages show works as it stands there."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from onpro import nn
from onpro.data import registry as data_registry
from onpro.methods import registry as method_registry
from onpro.streams import registry as stream_registry

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        ("README.md", 2),
        ("CONTRIBUTING.md", 8),
        ("docs/README.md", 1),
        ("docs/data.md", 1),
        ("docs/howto/own-images.md", 1),
        ("docs/howto/own-method.md", 2),
        ("docs/howto/own-stream.md", 2),
        ("docs/howto/resume.md", 1),
        ("docs/shortcuts.md", 1),
        ("docs/streams.md", 1),
    ],
)
def test_the_examples_run(
    name: str, examples: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(method_registry, "_METHODS", dict(method_registry._METHODS))
    monkeypatch.setattr(data_registry, "_sources", dict(data_registry._sources))
    monkeypatch.setattr(stream_registry, "_kinds", dict(stream_registry._kinds))
    monkeypatch.setattr(nn, "ENCODERS", dict(nn.ENCODERS))
    monkeypatch.setattr(method_registry, "_WRAPPERS", dict(method_registry._WRAPPERS))
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)
    assert len(blocks) == examples
    (tmp_path / "shown.py").write_text("\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shown", raising=False)
    import_module("shown")
