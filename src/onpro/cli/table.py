"""`onpro table NAME`: reproduce a table of the paper and compare."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import tyro

from onpro.cli.options import ExecutionOptions, ManyComputeOptions, ManyOptions
from onpro.cli.parsing import comma_separated, parse, whole_numbers
from onpro.cli.printing import print_table
from onpro.cli.signals import importing
from onpro.cli.stream_options import (
    ShortcutOptions,
    check_stream_options,
    chosen_kind,
    command_with,
    stream_of,
)
from onpro.errors import UserError
from onpro.experiments.tables import paper_table, paper_tables
from onpro.streams import Disjoint

if TYPE_CHECKING:
    from onpro.experiments.tables import PaperTable


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
    """Number of images of each class to use, for a quick try; omits the paper's values. (default:
    all)"""

    validation: float = 0.0
    """Share of each class's training images to hold out and evaluate on instead of the test images;
    omits the paper's values."""

    stream: str = "disjoint"
    """Kind of stream: a name that `onpro streams` lists, or a file of yours, ./my_stream.py. Its
    settings are further options. Kinds other than the default omit the paper's values."""

    hide_boundaries: bool = False
    """Do not announce tasks; omits the paper's values."""

    evaluations: int = 0
    """Number of further evaluations, evenly spaced over the stream, for the measure anytime; omits
    the paper's values."""


GROUPS: dict[str, Any] = {
    "table": TableOptions,
    "shortcut": ShortcutOptions,
    "runs": ManyOptions,
    "compute": ManyComputeOptions,
    "execution": ExecutionOptions,
}

Command = command_with(Disjoint, **GROUPS)


def main(arguments: Sequence[str]) -> int:
    """Run and print a table."""
    about = (
        "Reproduce a table of the paper and compare.\n\n"
        "Finished runs in OUT are skipped, interrupted ones resumed."
    )
    kind = chosen_kind(arguments)
    command_type = command_with(kind, **GROUPS)
    check_stream_options(kind, command_type, arguments)
    command = parse(command_type, arguments, command="onpro table", about=about)
    options = command.table
    command.shortcut.check()
    if options.list:
        _print_list(list(paper_tables().values()))
        return 0
    if options.name is None:
        raise UserError(f"name a table: {', '.join(paper_tables())}; see onpro table --list.")
    table = paper_table(options.name)
    with importing():
        from onpro.cli.many import carry_out

    part = table.narrowed(
        data=comma_separated(options.data),
        methods=comma_separated(options.methods),
        memory=whole_numbers("memory", options.memory) if options.memory else [],
    )
    stream = {
        "limit_per_class": (options.limit_per_class, None),
        "validation": (options.validation, 0.0),
        "stream": (stream_of(command, kind), Disjoint()),
        "hide_boundaries": (options.hide_boundaries, False),
        "evaluations": (options.evaluations, 0),
        **{
            field.name: (getattr(command.shortcut, field.name), field.default)
            for field in fields(ShortcutOptions)
        },
    }
    given = tuple((name, value) for name, (value, usual) in stream.items() if value != usual)
    return carry_out(
        part.setups(_seeds(options, part), given),
        command.runs,
        command.compute,
        command.execution,
        what=part.name,
        measures=part.measures,
    )


def _print_list(listed: "Sequence[PaperTable]") -> None:
    print_table(
        ["name", "what", "data sets", "cells", "runs a cell"],
        [
            [
                known.name,
                known.about,
                ", ".join(dict.fromkeys(data for data, _ in known.places)),
                str(len(known.rows) * len(known.places) * len(known.measures)),
                str(known.runs),
            ]
            for known in listed
        ],
    )


def _seeds(options: TableOptions, part: "PaperTable") -> range:
    from onpro.experiments.experiment import require_seeds

    number = part.runs if options.seeds is None else options.seeds
    require_seeds(number)
    return range(options.seed, options.seed + number)
