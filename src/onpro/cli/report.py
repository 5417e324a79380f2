"""`onpro report RUN…`: a table of finished runs beside the paper's values."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from onpro.cli.parsing import parse
from onpro.errors import UserError
from onpro.experiments.reading import read_runs
from onpro.reports import report


@dataclass(frozen=True)
class ReportOptions:
    """Which runs to report."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders that hold some."""


@dataclass(frozen=True)
class Command:
    """A report."""

    options: ReportOptions


def main(arguments: Sequence[str]) -> int:
    """Print the table, as Markdown."""
    about = "Print finished runs as a Markdown table, beside what the paper reports."
    options = parse(Command, arguments, command="onpro report", about=about).options
    if not options.runs:
        raise UserError("name at least one run folder, such as runs.")
    print(report(read_runs(options.runs)))
    return 0
