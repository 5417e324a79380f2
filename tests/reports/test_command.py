"""`onpro report`."""

from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import ttest_ind

from onpro.cli import main
from onpro.experiments.comparison import compare
from onpro.experiments.grouping import found
from onpro.methods import settings_for
from onpro.reports import comparisons, page, results
from onpro.reports.tables import conditions
from onpro.runs import Finished, run
from onpro.runs.reading import read_runs
from tests.reports.made_up import result, save
from tests.tiny_runs import ER


@pytest.fixture
def out(tmp_path: Path) -> Path:
    for seed in range(2):
        save(tmp_path / "runs", result(seed=seed))
    return tmp_path / "runs"


def printed(out: Path, *options: str) -> str:
    """What a report writes to a file."""
    path = out.parent / "written.txt"
    assert main(["report", str(out), *options, "--out", str(path)]) == 0
    return path.read_text()


def test_in_a_pipe_tables_are_markdown(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(out)]) == 0
    experiments = found(read_runs([out]))
    tables = results(experiments, "markdown")
    assert capsys.readouterr().out == f"{tables}\n\n{conditions(experiments)}\n"


def test_no_measures_are_the_usual_ones(out: Path) -> None:
    assert printed(out, "--measures", "") == printed(out)


def test_only_tables_of_percentages_are_said_to_be_in_percent(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for measures, is_percent in (("accuracy,forgetting", True), ("accuracy,seconds", False)):
        assert main(["report", str(out), "--measures", measures]) == 0
        assert ("in percent" in capsys.readouterr().out) == is_percent


def test_on_a_terminal_tables_are_text_that_fits(
    out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(
        out, result(recipe="a-rather-long-name-for-a-recipe, that has several words"), code="f" * 8
    )
    monkeypatch.setattr("onpro.cli.report._on_terminal", lambda: True)
    monkeypatch.setattr("onpro.reports.formats.terminal_width", lambda: 80)
    assert main(["report", str(out)]) == 0
    text = capsys.readouterr().out
    tables = text[: text.index("Mean ±")]
    assert "cifar10, M = 200" in tables.splitlines()
    assert max(map(len, tables.splitlines())) <= 80
    assert "several words)" in tables, "folded, not cut"


def test_the_ending_of_a_file_gives_the_format(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = found(read_runs([out]))
    said = conditions(experiments)
    for ending, expected in {
        "html": page(experiments),
        "md": f"{results(experiments, 'markdown')}\n\n{said}\n",
        "txt": f"{results(experiments, 'text')}\n\n{said}\n",
        **{e: results(experiments, e) + "\n" for e in ("csv", "json")},
        "tex": results(experiments, "latex") + "\n",
    }.items():
        path = tmp_path / f"report.{ending}"
        assert main(["report", str(out), "--out", str(path)]) == 0
        assert capsys.readouterr().out == f"saved {path}\n"
        assert path.read_text() == expected
    assert printed(out, "--format", "csv") == results(experiments, "csv") + "\n"


def test_a_file_of_no_known_format_is_a_mistake(
    out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(out), "--out", "report.docx"]) == 2
    assert "--format" in capsys.readouterr().err
    assert main(["report", str(out), "--measures", "acuracy"]) == 2
    assert "did you mean 'accuracy'" in capsys.readouterr().err
    assert main(["report", str(out), "--measures", "anytime"]) == 2
    assert "none of these runs has measured 'anytime'" in capsys.readouterr().err


def test_what_is_skipped_is_named_on_the_page_too(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (out / "broken").mkdir()
    (out / "broken" / "result.json").write_text("{")
    target = tmp_path / "report.html"
    assert main(["report", str(out), "--out", str(target)]) == 0
    assert "broken" in capsys.readouterr().err
    assert "broken" in target.read_text()


def test_a_file_that_cannot_be_written_is_a_mistake(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(out), "--out", str(tmp_path / "no" / "page.html")]) == 2
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
    text = capsys.readouterr().out
    compared = compare(found(read_runs([out])), ["accuracy", "forgetting"])
    assert text == comparisons(compared, "markdown") + "\n"
    rows = [line for line in text.splitlines() if "Welch |" in line]
    assert [row.count("| accuracy |") for row in rows] == [1, 0]
    values = {
        name: [run.result["average_accuracy"] for run in read_runs([out]) if is_one_of(run, name)]
        for name in ("onpro", "er")
    }
    first, second = (cell.split(",")[0] for cell in rows[0].strip("| ").split(" | ")[:2])
    expected = ttest_ind(values[first], values[second], equal_var=False).pvalue
    assert f"| {len(values[first])} + {len(values[second])} |" in rows[0]
    assert f"| {expected:.2g} | {expected:.2g} |" in rows[0], "a single pair needs no correction"


def is_one_of(run: Finished, method: str) -> bool:
    return (run.result["method"], run.result["memory"]) == (method, 200)


def test_rows_of_one_name_are_told_apart(out: Path) -> None:
    for seed in range(2):
        save(out, result(seed=seed, precision="bf16"), code="ffffffff")
    text = printed(out, "--compare", "--format", "markdown")
    assert "| onpro, learning_rate=0.1, bf16 |" in text
    assert "| onpro, learning_rate=0.1, fp32 |" in text


def test_nothing_to_compare_is_a_mistake(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(out), "--compare"]) == 2
    assert "nothing to compare" in capsys.readouterr().err


def test_a_leaderboard_without_entries_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, result(recipe="without-ope"))
    assert main(["report", str(tmp_path), "--leaderboard"]) == 2
    assert "none of these runs is in a leaderboard" in capsys.readouterr().err


def test_a_page_shows_the_networks_that_were_kept(tmp_path: Path) -> None:
    scr = replace(ER, method="scr", settings=settings_for("scr", "tiny"))
    for config in (ER, replace(ER, seed=1), scr):
        run(replace(config, model="network"), tmp_path / "kept")
    run(ER, tmp_path / "bare")
    sources = {}
    for name, options in {"kept": (), "none": ("--no-pictures",), "bare": ()}.items():
        folder = tmp_path / ("bare" if name == "bare" else "kept")
        assert main(["report", str(folder), "--out", str(tmp_path / "page.html"), *options]) == 0
        sources[name] = (tmp_path / "page.html").read_text()
    assert sources["kept"].count("data:image/png;base64,") == 2
    assert len(sources["kept"]) < 1_500_000
    assert all("data:image/png;base64," not in sources[name] for name in ("none", "bare"))


def test_a_page_without_the_pictures_that_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = run(replace(ER, model="network"), tmp_path / "runs")
    (done.folder / "model.onpro").write_bytes(b"nothing")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    assert "the page has no features of tiny" in capsys.readouterr().err
