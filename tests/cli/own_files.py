"""What tests of methods and streams in files of one's own share."""

import json
import signal
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from onpro import user_file as files
from onpro.experiments.executors import worker
from onpro.runs import running
from tests.cli.conftest import Answer, Command


@contextmanager
def nothing_imported(
    monkeypatch: pytest.MonkeyPatch, registry: Any, entries: str
) -> Iterator[None]:
    """Begin without imported files, and forget at the end what they registered."""
    monkeypatch.setattr(registry, entries, dict(getattr(registry, entries)))
    monkeypatch.setattr(files, "_LOADED", {})
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("onpro_file_"):
            del sys.modules[name]


def forget(entries: MutableMapping[str, Any], *names: str) -> None:
    """Make this process as one that has not imported any file yet, which registered the names."""
    for name in files._LOADED:
        del sys.modules[name]
    files._LOADED.clear()
    for name in names:
        entries.pop(name, None)


def result(answer: Answer) -> Any:
    """The result that a command printed."""
    assert answer.status == 0, answer.err
    return json.loads(answer.out)


def interrupt(
    onpro: Command, arguments: list[str], out: Path, monkeypatch: pytest.MonkeyPatch, *, after: int
) -> Path:
    """Stop a run after some batches; return its folder."""

    def stopped(*given: Any, **how: Any) -> Any:
        stream = how["trainer"].stream
        how["stop"] = lambda: signal.SIGTERM if stream.position >= after else None
        return running(*given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(worker, "running", stopped)
        assert onpro(*arguments).status == 128 + signal.SIGTERM
    (folder,) = (path for path in out.iterdir() if path.is_dir())
    return folder


def goes_on(onpro: Command, interrupted: Path, arguments: list[str]) -> None:
    """Check that an interrupted run ends as one does that was never interrupted."""
    resumed = result(onpro("resume", str(interrupted), "--json"))
    again = result(onpro(*arguments, "--fresh", "--json"))
    assert resumed["accuracy"] == again["accuracy"]
    assert resumed["identity"] == again["identity"]


def needs_its_file(onpro: Command, interrupted: Path, file: Path) -> None:
    """Check that an interrupted run is refused once its file has changed, and once it is gone."""
    file.write_text(file.read_text() + "\n")
    answer = onpro("resume", str(interrupted))
    assert answer.status == 2
    assert f"{file.name} has changed since the run began: undo that" in answer.err
    file.unlink()
    answer = onpro("resume", str(interrupted))
    assert answer.status == 2
    assert f"{file.name}, which the run needs, is gone: put it back." in answer.err
    assert "Traceback" not in answer.err
