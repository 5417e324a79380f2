"""Render records as text, Markdown, LaTeX, CSV or JSON."""

import csv
import io
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from onpro.text import fit, visible, written

Format = Literal["text", "markdown", "latex", "csv", "json"]
Value = str | int | float | bool | None
Record = Mapping[str, Value]


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    key: str
    """Key in the records, in CSV and in JSON."""
    title: str
    spec: str = ""
    """Format of numbers for people."""
    heading: str = ""
    """In text the column is left out and its value, formatted by this, is written above a block of
    records; in LaTeX a rule separates the blocks."""
    for_programs: bool = False
    """Whether only CSV and JSON have it."""
    for_people: bool = False
    """Whether CSV and JSON leave it out."""


def with_spread(mean: float, spread: float | None) -> str:
    """Return a mean and its spread with one decimal each.

    >>> with_spread(20.25, None), with_spread(20.25, 0.5)
    ('20.3', '20.3 ± 0.5')
    """
    return " ± ".join(written(value, ".1f") for value in (mean, spread) if value is not None)


def render(records: Sequence[Record], columns: Sequence[Column], kind: Format) -> str:
    """Return a table as text.

    For people (text, markdown, latex) numbers are rounded as the columns say, a missing value is
    blank, and a column without any value is left out. For programs (csv, json) numbers are not
    rounded and all columns are there.
    """
    if kind in ("csv", "json"):
        shown = [column for column in columns if not column.for_people]
    else:
        shown = [c for c in columns if not c.for_programs and any(_shown(r, c) for r in records)]
    return _RENDERERS[kind](records, shown)


def _text(records: Sequence[Record], columns: Sequence[Column]) -> str:
    """Return aligned columns that fit the terminal, in blocks below headings."""
    rest = [column for column in columns if not column.heading]
    titles = [column.title for column in rest]
    words = [_has_words(records, column) for column in rest]
    blocks: dict[str, list[list[str]]] = {}
    for record in records:
        heading = ", ".join(c.heading.format(_shown(record, c)) for c in columns if c.heading)
        blocks.setdefault(heading, []).append([_shown(record, column) for column in rest])
    everything = [titles, *(row for rows in blocks.values() for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*everything, strict=True)]
    if width := terminal_width():
        least = [
            max(len(word) for row in everything for word in row[k].split() or [""])
            if wraps
            else width
            for k, (wraps, width) in enumerate(zip(words, widths, strict=True))
        ]
        widths = fit(widths, least, width - GAP * (len(rest) - 1))
    rule = (" " * GAP).join("-" * width for width in widths)
    return "\n\n".join(
        "\n".join(
            [
                *filter(None, [heading]),
                *_aligned(titles, widths, words),
                rule,
                *(line for row in rows for line in _aligned(row, widths, words)),
            ]
        )
        for heading, rows in blocks.items()
    )


GAP = 2
"""Spaces between two columns of text."""


def terminal_width() -> int | None:
    """Return the width of the terminal on standard output, None if there is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _aligned(cells: Sequence[str], widths: Sequence[int], words: Sequence[bool]) -> Iterator[str]:
    """Yield the lines of a row, words aligned to the left and numbers to the right."""
    folded = [textwrap.wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    for line in zip_longest(*folded, fillvalue=""):
        aligned = (
            text.ljust(width) if is_word else text.rjust(width)
            for text, width, is_word in zip(line, widths, words, strict=True)
        )
        yield (" " * GAP).join(aligned).rstrip()


def _has_words(records: Sequence[Record], column: Column) -> bool:
    """Return whether a column has text other than numbers such as 20.9 ± 0.9."""
    texts = (value for record in records if isinstance(value := record.get(column.key), str))
    return not all(re.fullmatch(r"-?[\d.]+( ± [\d.]+)?", text) for text in texts)


def _markdown(records: Sequence[Record], columns: Sequence[Column]) -> str:
    rows = [[_shown(record, column) for column in columns] for record in records]
    return markdown([column.title for column in columns], rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    first, *others = ([markdown_text(cell) for cell in row] for row in [header, *rows])
    lines = [first, ["---"] * len(header), *others]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_text(text: str) -> str:
    r"""Escape text for Markdown: nothing in it ends a cell or begins a tag or a link.

    >>> markdown_text("a|b [c](javascript:d)"), markdown_text("learning_rate=0.1")
    ('a\\|b \\[c](javascript:d)', 'learning_rate=0.1')
    """
    return re.sub(r"([\\|<\[`*~]|&(?=#?\w+;)|\b_|_\b)", r"\\\1", visible(text))


def _latex(records: Sequence[Record], columns: Sequence[Column]) -> str:
    """Return a tabular with the rules of booktabs, one between blocks unless all have one row."""
    blocks: dict[tuple[Value, ...], list[str]] = {}
    for record in records:
        place = tuple(record.get(column.key) for column in columns if column.heading)
        blocks.setdefault(place, []).append(
            latex_row([latex_text(_minus(record, c)) for c in columns])
        )
    rule = "\\midrule\n" if len(records) > len(blocks) else ""
    alignment = "".join("l" if _has_words(records, column) else "r" for column in columns)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"]
    lines += [latex_row([latex_text(column.title) for column in columns]), r"\midrule"]
    body = f"\n{rule}".join("\n".join(rows) for rows in blocks.values())
    return "\n".join([*lines, *filter(None, [body]), r"\bottomrule", r"\end{tabular}"])


def _minus(record: Record, column: Column) -> str:
    """Return a cell, with a minus sign in the place of a hyphen."""
    shown = _shown(record, column)
    is_number = not isinstance(record.get(column.key), str)
    return shown.replace("-", "−") if is_number or _INTERVAL.fullmatch(shown) else shown


_INTERVAL = re.compile(r"[-+]?[\d.]+ to [-+]?[\d.]+")


def latex_row(cells: Sequence[str]) -> str:
    """Return a row of a tabular, made of escaped cells."""
    return " & ".join(cells) + r" \\"


def latex_text(text: str) -> str:
    r"""Escape text for LaTeX.

    >>> latex_text("50 %"), latex_text("20.3 ± 0.5")
    ('50 \\%', '20.3 $\\pm$ 0.5')
    """
    return "".join(_ESCAPES.get(letter, letter) for letter in text)


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
    """Return a value that no spreadsheet takes for a formula."""
    if not isinstance(value, str):
        return value
    text = visible(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def _json(records: Sequence[Record], columns: Sequence[Column]) -> str:
    values = [{column.key: record.get(column.key) for column in columns} for record in records]
    return json.dumps(values, indent=1)


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
