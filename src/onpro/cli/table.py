"""`onpro table NAME`: a table of the paper, run and printed beside the paper's values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from onpro.cli.options import ManyOptions
from onpro.cli.parsing import parse, whole
from onpro.cli.printing import print_table
from onpro.cli.signals import importing
from onpro.cli.stream_options import check_stream_options, chosen_kind, command_with, stream_of
from onpro.errors import UserError
from onpro.streams import Disjoint

if TYPE_CHECKING:
    from onpro.experiments.tables import Table


@dataclass(frozen=True)
class TableOptions:
    """Which table, and which part of it."""

    name: tyro.conf.Positional[str | None] = None
    """Name of the table, such as table1 or tableA5."""

    list: bool = False
    """List the tables."""

    data: str = ""
    """Data sets, joined by commas; else those of the table. Others have no value of the paper."""

    methods: str = ""
    """Methods or variants, joined by commas; else those of the table."""

    memory: str = ""
    """Memory sizes, joined by commas; else those of the table."""

    seed: int = 0
    """Seed of the first run."""

    seeds: int | None = None
    """Number of runs of each cell, with seeds SEED, SEED+1, ...; else as many as in the paper."""

    limit_per_class: int | None = None
    """Use only so many images of each class, for a quick try; the paper's values are left out."""

    stream: str = "disjoint"
    """Kind of stream: a name that `onpro streams` lists, whose settings are further options; the
    paper's values are left out."""

    hide_boundaries: bool = False
    """Do not tell methods when a task begins; the paper's values are left out."""

    evaluations: int = 0
    """Evaluate at so many equal distances too, beside after each task, for anytime_accuracy; the
    paper's values are left out."""


def main(arguments: Sequence[str]) -> int:
    """Run and print a table."""
    about = (
        "Run what a table of the paper needs and print it beside the paper's values.\n\n"
        "What is finished in OUT is not run again, what was interrupted goes on."
    )
    kind = chosen_kind(arguments)
    command_type = command_with(kind, table=TableOptions, runs=ManyOptions)
    check_stream_options(kind, command_type, arguments)
    command = parse(command_type, arguments, command="onpro table", about=about)
    options = command.table
    with importing():
        from onpro.cli.many import carry_out
        from onpro.experiments.tables import table, tables

    if options.list:
        _print_list(list(tables().values()))
        return 0
    if options.name is None:
        raise UserError(f"name a table: {', '.join(tables())}; see onpro table --list.")
    part = table(options.name).narrowed(
        data=_split(options.data),
        methods=_split(options.methods),
        memory=[_whole(size) for size in _split(options.memory)],
    )
    stream = {
        "limit_per_class": (options.limit_per_class, None),
        "stream": (stream_of(command, kind), Disjoint()),
        "hide_boundaries": (options.hide_boundaries, False),
        "evaluations": (options.evaluations, 0),
    }
    given = tuple((name, value) for name, (value, usual) in stream.items() if value != usual)
    cells = list(part.cells(_seeds(options, part), given))
    return carry_out(cells, command.runs, what=part.name)


def _print_list(listed: "Sequence[Table]") -> None:
    print_table(
        ["name", "what", "data sets", "cells", "runs a cell"],
        [
            [
                known.name,
                known.about,
                ", ".join(dict.fromkeys(column.data for column in known.columns)),
                str(len(known.rows) * len(known.columns)),
                str(known.runs),
            ]
            for known in listed
        ],
    )


def _seeds(options: TableOptions, part: "Table") -> range:
    from onpro.experiments.experiment import require_seeds

    number = part.runs if options.seeds is None else options.seeds
    require_seeds(number)
    return range(options.seed, options.seed + number)


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))


def _whole(text: str) -> int:
    number = whole(text)
    if number is None:
        raise UserError(f"--memory takes whole numbers joined by commas, not '{text}'.")
    return number
