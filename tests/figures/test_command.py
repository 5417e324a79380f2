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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a figure and run folders: onpro figure accuracy runs; see --list"),
        (["accuracy"], "name a figure and run folders"),
        (["runs"], "there is no figure 'runs'"),
        (["sweep", "runs", "--x", "nothing"], "there is no setting of these runs 'nothing'"),
    ],
)
def test_it_says_what_it_needs(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["figure", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_list_says_what_each_figure_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "confusion" in listed
    assert "(Fig. 4b)" in listed
