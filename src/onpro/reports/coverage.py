"""Tables of the cells of the paper that are measured."""

from collections.abc import Iterable, Sequence
from itertools import groupby

from onpro.experiments.coverage import Cell, Status
from onpro.reports.formats import Column, Format, Record, render, with_spread
from onpro.reports.tables import DATA_TITLES
from onpro.runs.result import machine
from onpro.text import written

MARKS: dict[Status, str] = {"agrees": "✓", "differs": "✗", "not measured": ""}

INDEX = [
    Column(key, key)
    for key in (
        *("table", "row", "measure", "method", "recipe", "data", "memory"),
        *("n", "mean", "deviation", "interval", "paper", "paper_deviation", "difference"),
        *("status", "command", "commit", "hardware", "date"),
    )
]

COUNTS = [
    Column("table", "table"),
    Column("about", "what"),
    Column("cells", "cells"),
    Column("agrees", "agree ✓"),
    Column("differs", "differ ✗"),
    Column("not measured", "not measured"),
]


def coverage_tables(cells: Sequence[Cell], kind: Format) -> str:
    """Return the cells as tables: for programs one line each, for people as the paper has them.

    For people the number of cells of each status comes first. A cell then shows mean ± standard
    deviation, the number of runs, the difference from the paper's mean, and the status.
    """
    if kind in ("csv", "json"):
        return render([_record(cell) for cell in cells], INDEX, kind)
    parts = [render(_counts(cells), COUNTS, kind)]
    for name, of_table in groupby(cells, key=lambda cell: cell.table.name):
        members = list(of_table)
        parts.append(_heading(f"{_title(name)}: {members[0].table.about}", kind))
        for data in dict.fromkeys(cell.data for cell in members):
            there = [cell for cell in members if cell.data == data]
            parts.append(_matrix(there, data, kind))
    return "\n\n".join(parts)


def _heading(text: str, kind: Format) -> str:
    return {"markdown": f"## {text}", "latex": f"% {text}"}.get(kind, text)


def _title(name: str) -> str:
    """Return how the paper calls a table.

    >>> _title("tableA1")
    'Table A1'
    """
    return f"Table {name.removeprefix('table')}"


def _counts(cells: Sequence[Cell]) -> list[Record]:
    records: list[Record] = []
    for name, of_table in groupby(cells, key=lambda cell: cell.table.name):
        members = list(of_table)
        statuses = [cell.status for cell in members]
        counts: Record = {status: statuses.count(status) for status in MARKS}
        about = members[0].table.about
        records.append({"table": _title(name), "about": about, "cells": len(members), **counts})
    every = [cell.status for cell in cells]
    total: Record = {status: every.count(status) for status in MARKS}
    return [*records, {"table": "all", "cells": len(cells), **total}]


def _matrix(cells: Sequence[Cell], data: str, kind: Format) -> str:
    """Return the cells of a table on one data set: methods as rows, memories as columns."""
    several = len({cell.measure for cell in cells}) > 1
    rows: dict[str, dict[str, str]] = {}
    columns = {"name": Column("name", DATA_TITLES[data])}
    for cell in cells:
        title = f"M = {cell.memory}" + (f", {cell.measure}" if several else "")
        columns[title] = Column(title, title)
        rows.setdefault(cell.row.title, {"name": cell.row.title})[title] = _shown(cell)
    return render(list(rows.values()), list(columns.values()), kind)


def _shown(cell: Cell) -> str:
    summary, difference = cell.summary, cell.difference
    if summary is None or difference is None:
        return f"– (paper {written(cell.paper[0], '.1f')})"
    value = with_spread(summary.mean, summary.deviation)
    return f"{value} ({summary.n}), {written(difference, '+.1f')} {MARKS[cell.status]}"


def _record(cell: Cell) -> Record:
    summary = cell.summary
    results = [run.result for run in cell.experiment.runs] if cell.experiment else []
    return {
        "table": cell.table.name,
        "row": cell.row.title,
        "measure": cell.measure,
        "method": cell.row.method,
        "recipe": cell.row.recipe,
        "data": cell.data,
        "memory": cell.memory,
        "n": summary.n if summary else 0,
        "mean": _rounded(summary.mean if summary else None),
        "deviation": _rounded(summary.deviation if summary else None),
        "interval": _rounded(summary.interval if summary else None),
        "paper": cell.paper[0],
        "paper_deviation": cell.paper[1],
        "difference": _rounded(cell.difference),
        "status": cell.status,
        "command": cell.command,
        "commit": _each(result.get("commit") for result in results),
        "hardware": _each(machine(result["hardware"]) for result in results),
        "date": _each((result.get("started") or "")[:10] for result in results),
    }


def _rounded(value: float | None) -> float | None:
    """Return a number with the digits that mean something."""
    return None if value is None else round(value, 3)


def _each(values: Iterable[str | None]) -> str:
    """Return the different values, without those that are unknown."""
    return "; ".join(sorted({value for value in values if value}))
