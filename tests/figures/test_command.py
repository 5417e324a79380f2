"""`onpro figure`."""

from pathlib import Path

import pytest

from onpro.cli import main
from tests.reports.made_up import result, save


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "runs", result())
    (tmp_path / "figures").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("out", "written"),
    [
        ([], "accuracy.png"),
        (["--out", "mine"], "mine.png"),
        (["--out", "mine.svg"], "mine.svg"),
        (["--out", "figures"], "figures/accuracy.png"),
    ],
)
def test_it_says_which_file_it_has_written(
    out: list[str], written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", "accuracy", "runs", *out]) == 0
    assert capsys.readouterr().out == f"saved {written}\n"
    assert Path(written).is_file()


@pytest.mark.parametrize("arguments", [[], ["accuracy"], ["runs"]])
def test_it_says_what_it_needs(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", *arguments]) == 2
    said = capsys.readouterr().err
    assert "name a figure, accuracy or matrix, and run folders: onpro figure accuracy runs" in said
