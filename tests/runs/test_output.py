"""Files that the user asks for."""

import errno
import os
from pathlib import Path

import pytest

from onpro.cli import main
from onpro.errors import UserError
from onpro.runs.files import save
from tests.reports import made_up


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", refuse)


BENCH = ["bench", "er", "--like", "tiny", "--steps", "1", "--repeats", "1", "--device", "cpu"]
REPORTS = ["html", "markdown", "latex", "csv", "json"]


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize(
    "option", [*REPORTS, "figure", pytest.param("bench", marks=pytest.mark.slow)]
)
def test_a_full_disk_leaves_the_older_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    runs, old = tmp_path / "runs", tmp_path / "old.svg"
    made_up.save(runs, made_up.result())
    old.write_text("precious")
    commands = {
        "figure": ["figure", "accuracy", str(runs), "--out", str(old)],
        "bench": [*BENCH, "--save", str(old)],
    }
    assert (
        main(commands.get(option, ["report", str(runs), "--format", option, "--out", str(old)]))
        == 2
    )
    assert "no space left on device" in capsys.readouterr().err
    assert old.read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.svg", "runs"]


def test_what_is_no_file_is_written_to(tmp_path: Path) -> None:
    save(Path(os.devnull), b"x")
    assert Path(os.devnull).is_char_device()


def test_nobody_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UserError, match="cannot write"):
        save(tmp_path / "fifo", b"x")


@pytest.mark.parametrize("name", ["x" * 256, "a\0b", "no/such/folder"])
def test_a_file_that_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="cannot write"):
        save(tmp_path / name, b"x")
