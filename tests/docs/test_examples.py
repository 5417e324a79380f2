"""What the pages show works as it stands there."""

import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from onpro import nn
from onpro.data import registry as data_registry
from onpro.methods import registry as method_registry
from onpro.runs import run
from onpro.streams import registry as stream_registry
from tests.tiny_runs import ER

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Work in an empty folder, and forget what is registered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(method_registry, "_METHODS", dict(method_registry._METHODS))
    monkeypatch.setattr(data_registry, "_sources", dict(data_registry._sources))
    monkeypatch.setattr(stream_registry, "_kinds", dict(stream_registry._kinds))
    monkeypatch.setattr(nn, "ENCODERS", dict(nn.ENCODERS))
    monkeypatch.setattr(method_registry, "_WRAPPERS", dict(method_registry._WRAPPERS))


def imported(name: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Run the examples of a page."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), flags=re.DOTALL)
    assert len(blocks) == examples
    Path("shown.py").write_text("\n".join(blocks))
    monkeypatch.delitem(sys.modules, "shown", raising=False)
    return import_module("shown")


@pytest.mark.parametrize(
    ("name", "examples"),
    [
        ("README.md", 2),
        ("CONTRIBUTING.md", 10),
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
def test_the_examples_run(name: str, examples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    imported(name, examples, monkeypatch)


@pytest.mark.parametrize("name", ["docs/checkpoints.md", "docs/reports.md"])
def test_the_examples_with_a_run_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run(ER, Path("runs")).folder.rename("runs/er-digits-m100-s0-1a2b3c4d")
    imported(name, 1, monkeypatch)


def test_the_example_of_many_runs_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    imported("docs/experiments.md", 1, monkeypatch).main()
    assert capsys.readouterr().out.count("finished runs/er-tiny-m100-s") == 3
