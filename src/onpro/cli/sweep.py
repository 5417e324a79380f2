"""`onpro sweep FILE`: run a grid of your own and compare its methods."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from onpro.cli.options import ExecutionOptions, ManyComputeOptions, ManyOptions
from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError


@dataclass(frozen=True)
class SweepOptions:
    """What to run."""

    file: tyro.conf.Positional[Path | None] = field(default=None, metadata={"metavar": "FILE"})
    """TOML file with grids of methods, data sets, memories, seeds, recipes and settings."""


@dataclass(frozen=True)
class SweepRunOptions(ManyOptions):
    """Where the runs are, and what is printed of them."""

    compare: bool = True


@dataclass(frozen=True)
class Command:
    """A sweep."""

    sweep: SweepOptions
    runs: SweepRunOptions
    compute: ManyComputeOptions
    execution: ExecutionOptions


def main(arguments: Sequence[str]) -> int:
    """Run and report a sweep."""
    about = (
        "Run all combinations that a TOML file names and compare their methods.\n\n"
        "Finished runs in OUT are skipped, interrupted ones resumed."
    )
    command = parse(Command, arguments, command="onpro sweep", about=about)
    file = command.sweep.file
    if file is None:
        raise UserError("name a TOML file with the runs to make, such as sweep.toml.")
    with importing():
        from onpro.cli.many import carry_out
        from onpro.experiments.sweep import read_sweep

    return carry_out(
        read_sweep(file), command.runs, command.compute, command.execution, what=str(file)
    )
