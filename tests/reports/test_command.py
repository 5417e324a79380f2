"""`onpro report`."""

from pathlib import Path

import pytest

from onpro.cli import main
from onpro.reports import comma_separated, latex, page, report
from onpro.runs.reading import read_runs
from tests.reports.made_up import result, save


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for seed in range(2):
        save(tmp_path / "runs", result(seed=seed))
    return tmp_path / "runs"


def test_without_a_file_the_table_is_printed(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(out)]) == 0
    assert capsys.readouterr().out == report(read_runs([out])) + "\n"


def test_every_format_goes_to_its_file(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: tmp_path / f"report.{name}" for name in ("html", "markdown", "latex", "csv")}
    options = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    assert main(["report", str(out), *options]) == 0
    assert capsys.readouterr().out.splitlines() == [f"saved {path}" for path in files.values()]
    runs = read_runs([out])
    assert files["html"].read_text() == page(runs)
    assert files["markdown"].read_text() == report(runs) + "\n"
    assert files["latex"].read_text() == latex(runs)
    assert files["csv"].read_text() == comma_separated(runs)


def test_what_is_skipped_is_named_on_the_page_too(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "broken").mkdir()
    (out / "broken" / "result.json").write_text("{")
    target = tmp_path / "report.html"
    assert main(["report", str(out), "--html", str(target)]) == 0
    assert "broken" in capsys.readouterr().err
    assert "broken" in target.read_text()


def test_a_file_that_cannot_be_written_is_a_mistake(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(out), "--html", str(tmp_path / "no" / "page.html")]) == 2
    error = capsys.readouterr().err
    assert "cannot write" in error
    assert len(error.splitlines()) == 1
