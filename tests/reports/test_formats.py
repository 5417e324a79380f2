"""One table in every format."""

import csv
import io
import json
import re
from pathlib import Path

import pytest

from onpro.reports.formats import Column, Record, render
from onpro.reports.tables import _columns

COLUMNS = [
    Column("title", "method"),
    Column("method", "", for_programs=True),
    Column("data", "data", heading="on {}"),
    Column("mean", "mean, %", ".1f"),
    Column("difference", "difference", "+.2f"),
    Column("inside", "inside"),
]
RECORDS: list[Record] = [
    {"title": "w/o L_new", "method": "onpro", "data": "tiny", "mean": 1 / 3, "inside": True},
    {"title": "α = 0 | 50 %", "method": "er", "data": "digits", "mean": 20, "difference": -1.234},
    {"title": "ER", "method": "er", "data": "tiny", "mean": None, "inside": False},
]


def test_text_has_a_block_for_each_heading() -> None:
    assert render(RECORDS, COLUMNS, "text") == "\n".join(
        [
            "on tiny",
            "method        mean, %  difference  inside",
            "------------  -------  ----------  ------",
            "w/o L_new         0.3                 yes",
            "ER                                     no",
            "",
            "on digits",
            "method        mean, %  difference  inside",
            "------------  -------  ----------  ------",
            "α = 0 | 50 %     20.0       -1.23",
        ]
    )


def test_a_column_without_any_value_is_only_for_programs() -> None:
    columns = [*COLUMNS, Column("paper", "paper")]
    for kind in ("text", "markdown", "latex"):
        assert render(RECORDS, columns, kind) == render(RECORDS, COLUMNS, kind)
    assert json.loads(render(RECORDS, columns, "json"))[0]["paper"] is None


def test_markdown() -> None:
    lines = render(RECORDS, COLUMNS, "markdown").splitlines()
    assert lines[0] == "| method | data | mean, % | difference | inside |"
    assert lines[3] == "| α = 0 \\| 50 % | digits | 20.0 | -1.23 |  |"
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {6}


def test_latex_uses_booktabs_and_escapes() -> None:
    text = render(RECORDS, COLUMNS, "latex")
    assert text.startswith("\\begin{tabular}{llrrr}\n\\toprule\nmethod & data & mean, \\%")
    assert text.endswith("\\bottomrule\n\\end{tabular}")
    assert "w/o L\\_new & tiny & 0.3 &  & yes \\\\" in text
    assert "$\\alpha$ = 0 \\textbar{} 50 \\% & digits & 20.0 & $-$1.23" in text
    rows = [line for line in text.splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {4}


def test_latex_has_minus_signs_in_numbers_and_intervals_only() -> None:
    columns = [Column("name", "name"), Column("bounds", "interval"), Column("value", "value")]
    records: list[Record] = [{"name": "er-kd", "bounds": "-2.0 to +1.5", "value": -3}]
    assert r"er-kd & $-$2.0 to +1.5 & $-$3 \\" in render(records, columns, "latex")


def test_latex_has_rules_between_blocks_only() -> None:
    lines = render(RECORDS, COLUMNS, "latex").splitlines()
    first_words = [line.split(" ")[0] for line in lines]
    assert first_words[1:] == [
        *("\\toprule", "method", "\\midrule", "w/o", "ER", "\\midrule", "$\\alpha$"),
        *("\\bottomrule", "\\end{tabular}"),
    ]
    alone = render(RECORDS[:2], COLUMNS, "latex")
    assert alone.count("\\midrule") == 1, "none between blocks of one row each"


def test_latex_sets_words_left_and_numbers_right() -> None:
    columns = [Column("a", "a"), Column("b", "b"), Column("c", "c")]
    records: list[Record] = [
        {"a": "one", "b": "20.9 ± 0.9", "c": 1},
        {"a": "2", "b": "-1.0", "c": None},
    ]
    assert render(records, columns, "latex").startswith("\\begin{tabular}{lrr}")


@pytest.mark.parametrize("letter", list("&%$#_{}~^\\|<>"))
def test_latex_never_shows_a_bare_special_letter(letter: str) -> None:
    text = render([{"title": f"a{letter}b"}], COLUMNS[:1], "latex")
    body = text.splitlines()[4]
    assert f"a{letter}b" not in body
    assert body.endswith("\\\\")


def test_csv_has_whole_numbers_and_all_columns() -> None:
    first, *_ = csv.DictReader(io.StringIO(render(RECORDS, COLUMNS, "csv")))
    assert first == {
        "title": "w/o L_new",
        "method": "onpro",
        "data": "tiny",
        "mean": str(1 / 3),
        "difference": "",
        "inside": "True",
    }


def test_json_has_whole_numbers_and_all_columns() -> None:
    first, second, _ = json.loads(render(RECORDS, COLUMNS, "json"))
    assert first["mean"] == 1 / 3
    assert first["difference"] is None
    assert first["inside"] is True
    assert second["method"] == "er"


@pytest.mark.parametrize("kind", ["text", "markdown", "latex", "csv", "json"])
def test_an_empty_table_is_no_error(kind: str) -> None:
    render([], COLUMNS, kind)  # type: ignore[arg-type] # one of the formats


def test_the_page_on_many_runs_shows_the_columns_of_a_table() -> None:
    titles = [column.title for column in _columns("accuracy") if not column.heading]
    page = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    assert any(re.split(r" {2,}", line.strip()) == titles for line in page.splitlines())
