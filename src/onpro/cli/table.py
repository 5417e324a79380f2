"""`onpro table NAME`: reproduce a table of the paper and compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tyro

from onpro.cli.options import ExecutionOptions, ManyComputeOptions, ManyOptions
from onpro.cli.parsing import comma_separated, parse, whole_numbers
from onpro.cli.printing import print_table
from onpro.cli.signals import importing
from onpro.errors import UserError

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
    """Data sets, comma-separated (default: all of the table). Others have no value of the paper."""

    methods: str = ""
    """Methods or variants, comma-separated (default: all rows)."""

    memory: str = ""
    """Memory sizes, comma-separated (default: all of the table)."""

    seed: int = 0
    """Seed of the first run."""

    seeds: int | None = None
    """Number of runs of each cell, with seeds SEED, SEED+1, ... (default: as many as the paper)."""

    limit_per_class: int | None = None
    """Use only so many images of each class, for a quick try; the paper's values are left out."""


@dataclass(frozen=True)
class Command:
    """A table of the paper."""

    table: TableOptions
    runs: ManyOptions
    compute: ManyComputeOptions
    execution: ExecutionOptions


def main(arguments: Sequence[str]) -> int:
    """Run and print a table."""
    about = (
        "Reproduce a table of the paper and compare.\n\n"
        "Finished runs in OUT are skipped, interrupted ones resumed."
    )
    command = parse(Command, arguments, command="onpro table", about=about)
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
        data=comma_separated(options.data),
        methods=comma_separated(options.methods),
        memory=whole_numbers("memory", options.memory) if options.memory else [],
    )
    limit = options.limit_per_class
    stream = () if limit is None else (("limit_per_class", limit),)
    cells = list(part.cells(_seeds(options, part), stream))
    return carry_out(cells, command.runs, command.compute, command.execution, what=part.name)


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
