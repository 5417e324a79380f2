"""`onpro report RUN…`: tables or a page of finished runs beside the paper's values."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError
from onpro.text import visible


@dataclass(frozen=True)
class ReportOptions:
    """Which runs to report, and where."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that hold some."""

    html: Path | None = None
    """File for a page with tables, charts and settings, to open in a browser; needs no network."""

    markdown: Path | None = None
    """File for the tables in Markdown, as they are printed without any of these options."""

    latex: Path | None = None
    """File for the table in LaTeX (booktabs), to paste into a paper."""

    csv: Path | None = None
    """File for the table as comma-separated values, numbers unrounded."""

    streams: bool = False
    """Print methods against kinds of streams: accuracy at the end, and anytime accuracy."""

    compare: bool = False
    """Print all pairs of rows with the same data set and memory: difference, 95 % interval, Welch's
    p, and p adjusted by Holm's method."""


@dataclass(frozen=True)
class Command:
    """A report."""

    options: ReportOptions


def main(arguments: Sequence[str]) -> int:
    """Write the files asked for; without any, print tables in Markdown."""
    about = "Report finished runs beside what the paper reports: print tables, or write files."
    options = parse(Command, arguments, command="onpro report", about=about).options
    if not options.runs:
        raise UserError("name at least one run folder, such as runs.")
    with importing():
        from onpro.reports import (
            by_stream,
            comma_separated,
            comparisons,
            latex,
            page,
            report,
        )
        from onpro.runs.files import save
        from onpro.runs.reading import read_runs, warn

    passed_over: list[str] = []

    def skipped(folder: Path, reason: str) -> None:
        warn(folder, reason)
        passed_over.append(f"{folder}: {reason}.")

    runs = read_runs(options.runs, skipped=skipped)
    writers: list[tuple[Path | None, Callable[[], str]]] = [
        (options.html, lambda: page(runs, passed_over)),
        (options.markdown, lambda: report(runs) + "\n"),
        (options.latex, lambda: latex(runs)),
        (options.csv, lambda: comma_separated(runs)),
    ]
    asked = [(path, text) for path, text in writers if path is not None]
    for path, text in asked:
        save(path, text().encode())
        print(f"saved {visible(str(path))}")
    if options.streams:
        print(by_stream(runs))
    if options.compare:
        print(comparisons(runs))
    if not (asked or options.streams or options.compare):
        print(report(runs))
    return 0
