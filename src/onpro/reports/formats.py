"""Tables in the formats people need them in."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from onpro.text import visible, written

Format = Literal["text", "markdown", "latex", "csv", "json"]
Value = str | int | float | bool | None
Record = Mapping[str, Value]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str
    """What the records call it, and CSV and JSON."""
    title: str
    spec: str = ""
    """How its numbers are written where people read them."""
    heading: str = ""
    """How its value is written above a block of records in text, in place of the column; in LaTeX
    a rule is between the blocks."""
    for_programs: bool = False
    """Whether only CSV and JSON have it."""
    for_people: bool = False
    """Whether CSV and JSON leave it out."""


Table = tuple[Sequence[Record], Sequence[Column]]
"""Records, and the columns to show of them."""


def with_spread(mean: float, spread: float | None) -> str:
    """A mean and what it varies by, with one decimal each.

    >>> with_spread(20.25, None), with_spread(20.25, 0.5)
    ('20.3', '20.3 ± 0.5')
    """
    return " ± ".join(written(value, ".1f") for value in (mean, spread) if value is not None)


def render(records: Sequence[Record], columns: Sequence[Column], kind: Format) -> str:
    """A table as text.

    For people (text, markdown, latex) numbers are rounded as the columns say, a missing value is
    blank, and a column without any value is left out; for programs (csv, json) numbers are whole
    and all columns are there.
    """
    if kind in ("csv", "json"):
        return _RENDERERS[kind](records, _for_programs(columns))
    shown = [c for c in columns if not c.for_programs and any(_shown(r, c) for r in records)]
    return _RENDERERS[kind](records, shown)


def render_together(tables: Mapping[str, Table], kind: Format) -> str:
    """Several tables as text: in JSON one object with a list by each name.

    Otherwise they stand one below the other, but CSV has only the first: a file of it is one table.
    """
    if kind == "json":
        named = {
            name: _values(records, _for_programs(columns))
            for name, (records, columns) in tables.items()
        }
        return json.dumps(named, indent=1)
    filled = [render(records, columns, kind) for records, columns in tables.values() if records]
    return "\n\n".join(filled[:1] if kind == "csv" else filled)


def _for_programs(columns: Sequence[Column]) -> list[Column]:
    return [column for column in columns if not column.for_people]


def _text(records: Sequence[Record], columns: Sequence[Column]) -> str:
    """Aligned columns, in blocks below headings."""
    rest = [column for column in columns if not column.heading]
    titles = [column.title for column in rest]
    words = [_has_words(records, column) for column in rest]
    blocks: dict[str, list[list[str]]] = {}
    for record in records:
        heading = ", ".join(c.heading.format(_shown(record, c)) for c in columns if c.heading)
        rows = blocks.setdefault(heading, [titles, ["-" for _ in rest]])
        rows.append([_shown(record, column) for column in rest])
    everything = [titles, *(row for rows in blocks.values() for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*everything, strict=True)]
    return "\n\n".join(
        "\n".join([*filter(None, [heading]), *(_aligned(row, widths, words) for row in rows)])
        for heading, rows in blocks.items()
    )


def _aligned(cells: Sequence[str], widths: Sequence[int], words: Sequence[bool]) -> str:
    """Words to the left, numbers to the right; a dash becomes a rule."""
    return "  ".join(
        "-" * width if cell == "-" else cell.ljust(width) if is_word else cell.rjust(width)
        for cell, width, is_word in zip(cells, widths, words, strict=True)
    ).rstrip()


def _has_words(records: Sequence[Record], column: Column) -> bool:
    """Whether a column has other text than numbers such as 20.9 ± 0.9."""
    texts = (value for record in records if isinstance(value := record.get(column.key), str))
    return not all(re.fullmatch(r"[\d.]+( ± [\d.]+)?", text) for text in texts)


def _markdown(records: Sequence[Record], columns: Sequence[Column]) -> str:
    rows = [[_shown(record, column) for column in columns] for record in records]
    return markdown([column.title for column in columns], rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    first, *others = ([markdown_text(cell) for cell in row] for row in [header, *rows])
    lines = [first, ["---"] * len(header), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_text(text: str) -> str:
    r"""Text that Markdown shows as it is: nothing in it ends a cell or begins a tag or a link.

    >>> markdown_text("a|b [c](javascript:d)"), markdown_text("learning_rate=0.1")
    ('a\\|b \\[c](javascript:d)', 'learning_rate=0.1')
    """
    return re.sub(r"([\\|<\[`*~]|&(?=#?\w+;)|\b_|_\b)", r"\\\1", visible(text))


def _latex(records: Sequence[Record], columns: Sequence[Column]) -> str:
    """With rules of the package booktabs, one between blocks unless all are of one row."""
    blocks: dict[tuple[Value, ...], list[str]] = {}
    for record in records:
        place = tuple(record.get(column.key) for column in columns if column.heading)
        blocks.setdefault(place, []).append(_latex_row([_minus(record, c) for c in columns]))
    rule = "\\midrule\n" if len(records) > len(blocks) else ""
    alignment = "".join("l" if _has_words(records, column) else "r" for column in columns)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += [_latex_row([column.title for column in columns]), r"\midrule"]
    body = f"\n{rule}".join("\n".join(rows) for rows in blocks.values())
    return "\n".join([*lines, *filter(None, [body]), r"\bottomrule", r"\end{tabular}"])


def _minus(record: Record, column: Column) -> str:
    """A cell, a number below 0 with the sign for it."""
    shown = _shown(record, column)
    return shown if isinstance(record.get(column.key), str) else shown.replace("-", "−")


def _latex_row(cells: Sequence[str]) -> str:
    escaped = ("".join(_ESCAPES.get(letter, letter) for letter in cell) for cell in cells)
    return " & ".join(escaped) + r" \\"


_ESCAPES = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    **{letter: f"{{{letter}}}" for letter in "[]*"},  # would be options of the line before
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "−": r"$-$",
}


def _csv(records: Sequence[Record], columns: Sequence[Column]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.key for column in columns])
    for record in records:
        writer.writerow([_csv_cell(record.get(column.key)) for column in columns])
    return text.getvalue().rstrip("\n")


def _csv_cell(value: Value) -> Value:
    """A value that no spreadsheet takes for a formula, as it does what begins with one of these."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _json(records: Sequence[Record], columns: Sequence[Column]) -> str:
    return json.dumps(_values(records, columns), indent=1)


def _values(records: Sequence[Record], columns: Sequence[Column]) -> list[dict[str, Value]]:
    return [{column.key: record.get(column.key) for column in columns} for record in records]


def _shown(record: Record, column: Column) -> str:
    value = record.get(column.key)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return written(value, column.spec) if isinstance(value, int | float) else visible(value)


_RENDERERS: dict[Format, Callable[[Sequence[Record], Sequence[Column]], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "csv": _csv,
    "json": _json,
}
