"""The command, called in this process."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from onpro.cli import main


@dataclass(frozen=True)
class Answer:
    """What a command printed and how it ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Answer]


@pytest.fixture
def onpro(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Command:
    """Runs the command in an empty folder, on a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("ONPRO_DATA", raising=False)

    def call(*arguments: str) -> Answer:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as leaving:  # --help
            status = int(leaving.code or 0)
        return Answer(status, *capsys.readouterr())

    return call
