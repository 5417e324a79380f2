"""`onpro report`."""

import re
from pathlib import Path

import pytest
from scipy.stats import ttest_ind

from onpro.cli import main
from onpro.reports import comma_separated, comparisons, latex, page, report
from onpro.runs import Finished
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


def test_rows_are_compared_on_request(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(3):
        save(out, result("er", seed))
    save(out, result("single"))
    save(out, result("er", memory=500))
    assert main(["report", str(out), "--compare"]) == 0
    printed = capsys.readouterr().out
    assert printed == comparisons(read_runs([out])) + "\n"
    rows = [line for line in printed.splitlines() if "Welch |" in line]
    assert [row.count("| accuracy |") for row in rows] == [1, 0]
    values = {
        name: [run.result["average_accuracy"] for run in read_runs([out]) if is_one_of(run, name)]
        for name in ("onpro", "er")
    }
    first, second = re.findall(r"\| (\w+) ", rows[0])[:2]
    expected = ttest_ind(values[first], values[second], equal_var=False).pvalue
    assert f"| {len(values[first])} + {len(values[second])} |" in rows[0]
    assert f"| {expected:.2g} | {expected:.2g} |" in rows[0], "a single pair needs no correction"
    page_file = tmp_path / "report.html"
    assert main(["report", str(out), "--compare", "--html", str(page_file)]) == 0
    assert printed.splitlines()[0] in capsys.readouterr().out
    assert page_file.exists()


def is_one_of(run: Finished, method: str) -> bool:
    return (run.result["method"], run.result["memory"]) == (method, 200)


def test_rows_of_one_name_are_told_apart(out: Path) -> None:
    for seed in range(2):
        save(out, result(seed=seed, precision="bf16"), code="ffffffff")
    text = comparisons(read_runs([out]))
    assert "| onpro, cifar10, M = 200, bf16 |" in text
    assert "| onpro, cifar10, M = 200, fp32 |" in text


def test_nothing_to_compare_is_a_mistake(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(out), "--compare"]) == 2
    assert "nothing to compare" in capsys.readouterr().err
