"""Names and settings that others wrote are shown as text, whatever they hold, in every format."""

import csv
import io
import json
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onpro.cli.printing import print_table
from onpro.experiments.experiment import CUE_MEASURES, Experiment
from onpro.experiments.grouping import found
from onpro.figures import FIGURES, draw
from onpro.figures.style import Options
from onpro.reports import page, results
from onpro.reports.formats import Column, Format, Record, markdown_text, render
from onpro.runs import Finished
from onpro.text import visible
from tests.reports.made_up import result
from tests.reports.test_page import Elements

PARTS = st.sampled_from(
    [
        *("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "=cmd|' /C calc'!A0"),
        *("|", r"\|", r"\\|", "[x](javascript:alert(1))", "<b>", "&lt;", "`", "**", "~~", "_a_"),
        *("\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\x00", "\x7f", "\u202e", "\u2066", "\ufeff"),
        *("\n", "\r\n", "\u2028", "\u2029", "\x0b", "\x85", "\ud800", "\udcff"),
        *(r"\\", "&", "%", "$x$", "#", "_", "{", "}", "~", "^", "[1cm]", "*", r"\input{x}"),
        *("</script>", "{{script}}", '"', "'", ",", ";", "é", "漢", "👩\u200d👧", "{0}", "%s"),
    ]
)
NAMES = st.lists(PARTS | st.text(max_size=4), min_size=1, max_size=4).map("".join)


def hostile_runs(name: str, folder: Path = Path("a-1")) -> list[Experiment]:
    said: dict[str, Any] = {
        **dict.fromkeys(("method", "data", "recipe", "precision", "device"), name),
        "classes": [f"{name} {k}" for k in range(6)],
        "versions": {"torch": name, "python": name, name: [name]},
        "hardware": {"gpu": name, "threads": 1},
    }
    return found([Finished(folder, result() | said)])


def require_visible(text: str) -> None:
    """Nothing in it commands a terminal, hides, or cannot be written."""
    text.encode()
    for letter in text.replace("\n", ""):
        hidden = unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        assert not hidden or letter in "\u200c\u200d", repr(letter)


@given(NAMES)
def test_what_is_visible_stays_so(name: str) -> None:
    require_visible(visible(name))
    assert "\n" not in visible(name)
    assert visible(visible(name)) == visible(name)


@settings(max_examples=50, deadline=None)
@given(NAMES)
@example("~\x00")  # no user can have this name
def test_markdown(name: str) -> None:
    text = results(hostile_runs(name), "markdown")
    require_visible(text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.findall(r"(?:\\.|[^|\\])+", row.strip("|")) for row in rows]
    assert len(cells) == 6
    assert len({len(row) for row in cells[:3]}) == 1 == len({len(row) for row in cells[3:]})
    escaped = markdown_text(name)
    assert escaped.strip() in ["", *(cell.strip() for cell in cells[2])]
    assert not re.search(r"(?<!\\)(\\\\)*[<\[`|*]", escaped)
    assert re.sub(r"\\([\\|<\[`*~&_])", r"\1", escaped) == visible(name)


@settings(max_examples=50, deadline=None)
@given(NAMES)
def test_csv(name: str) -> None:
    text = results(hostile_runs(name), "csv")
    require_visible(text)
    header, row = csv.reader(io.StringIO(text))
    cells = dict(zip(header, row, strict=True))
    for cell in cells.values():
        assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert cells["method"].removeprefix("'") == visible(name).removeprefix("'")


def test_negative_numbers_in_csv_stay_numbers() -> None:
    assert render([{"x": -1.5}], [Column("x", "x")], "csv") == "x\n-1.5"


@settings(max_examples=50, deadline=None)
@given(NAMES)
def test_latex(name: str) -> None:
    text = results(hostile_runs(name), "latex", measures=["accuracy"])
    require_visible(text)
    _, header, row = re.findall(r"^.* \\\\$", text, flags=re.MULTILINE)
    assert len(re.findall(r"(?<!\\)&", row)) == len(re.findall(r"(?<!\\)&", header))
    assert not row.startswith(("[", "*"))
    assert not re.search(r"(?<!\\)[#%_]", row)
    commands = set(re.findall(r"\\(?:[A-Za-z]+|.)", row.removesuffix(r"\\")))
    assert commands <= {*(rf"\{letter}" for letter in "&%$#_{}"), r"\pm", r"\alpha", r"\textbf"} | {
        rf"\text{word}"
        for word in ("backslash", "asciitilde", "asciicircum", "bar", "less", "greater")
    }


FORMATS: list[Format] = ["text", "markdown", "latex", "csv", "json"]


@pytest.mark.parametrize("kind", FORMATS)
@given(name=NAMES)
def test_tables_of_many_runs(kind: Format, name: str) -> None:
    columns = [Column("place", "place", heading="{}"), Column("name", "name"), Column("n", "n")]
    records: list[Record] = [{"place": name, "name": name, "n": 1}, {"place": name, "n": 2}]
    require_visible(render(records, columns, kind))


@settings(deadline=None)
@given(NAMES)
def test_tables_on_a_terminal(name: str) -> None:
    out = io.StringIO()
    print_table([name, "x"], [[name, "1"]], out)
    require_visible(out.getvalue())


@settings(max_examples=30, deadline=None)
@given(NAMES)
def test_the_page(name: str) -> None:
    text = page(hostile_runs(name), skipped=[name])
    assert Elements(text).found == Elements(page(found([Finished(Path("a-1"), result())]))).found
    data = json.loads(Elements(text).scripts[0])
    for said in strings(data):
        require_visible(said)
        assert "\n" not in said


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*strings(list(value)), *strings(list(value.values()))]
    if isinstance(value, list):
        return [said for part in value for said in strings(part)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize(
    "figure", [name for name in FIGURES if name not in ("attention", "features", "paper", "replay")]
)
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures(tmp_path: Path, figure: str, ending: str) -> None:
    name = "$\\frac$ \x1b[2J\x00\u202e\ud800 </svg> 漢 &"
    options = Options(x="memory" if figure == "sweep" else "")
    runs = [run for one in hostile_runs(name) for run in one.runs]
    measured = {"space": "features", "step": [1], "task": [0], "old": [None], "new": [1.0]}
    for run in runs:
        classes = len(run.result["confusion"])
        run.result.update(memory_content=[[1] * classes] * 3, prototypes=measured)
        run.result.update(dict.fromkeys(CUE_MEASURES.values(), 10.0))
    other = Finished(Path("b"), runs[0].result | {"memory": 7, "experiment": "b"})
    draw(figure, found([*runs, other]), tmp_path / f"a.{ending}", options)
    if ending == "svg":
        text = (tmp_path / "a.svg").read_text()
        require_visible(text)
        assert text.count("</svg>") == 1


def test_a_config_with_half_a_surrogate_pair_or_odd_settings(tmp_path: Path) -> None:
    for number, settings_of in enumerate(
        ['{"note": "\\ud800", "\\udfff": "=1"}', "5", '"text"', "[]", "null", "[[1, 2]]"]
    ):
        folder = tmp_path / f"er-s{number}-{number}"
        folder.mkdir()
        config = f'{{"method": "er", "data": "digits", "recipe": null, "settings": {settings_of}}}'
        (folder / "config.json").write_text(config)
        runs = found([Finished(folder, result("er", number))])
        for kind in FORMATS:
            results(runs, kind).encode()
        page(runs).encode()


@pytest.mark.parametrize("value", [5, [], {}, None, True])
def test_a_config_whose_names_are_no_text(tmp_path: Path, value: object) -> None:
    for key in ("method", "data", "recipe", "settings"):
        config = {"method": "er", "data": "digits", "recipe": None, "settings": {}} | {key: value}
        (tmp_path / "config.json").write_text(json.dumps(config))
        results(found([Finished(tmp_path, result("er"))]), "text")
