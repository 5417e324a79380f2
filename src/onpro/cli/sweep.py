"""`onpro sweep FILE`: runs of the user's own grid, and how its methods compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from onpro.cli.options import ManyOptions
from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError


@dataclass(frozen=True)
class SweepOptions:
    """What to run."""

    file: tyro.conf.Positional[Path | None] = None
    """TOML file with grids of methods, data sets, memories, seeds, recipes and settings."""


@dataclass(frozen=True)
class SweepRunOptions(ManyOptions):
    """Where runs happen and what is printed of them."""

    compare: bool = True
    """Compare all pairs of experiments: paired t-test on the same stream, else Welch's test, with
    Holm's correction."""


@dataclass(frozen=True)
class Command:
    """A sweep."""

    sweep: SweepOptions
    runs: SweepRunOptions


def main(arguments: Sequence[str]) -> int:
    """Run and report a sweep."""
    about = (
        "Run all combinations that a TOML file names and compare their methods.\n\n"
        "What is finished in OUT is not run again, what was interrupted goes on."
    )
    command = parse(Command, arguments, command="onpro sweep", about=about)
    file = command.sweep.file
    if file is None:
        raise UserError("name a TOML file with the runs to make, such as sweep.toml.")
    with importing():
        from onpro.cli.many import carry_out
        from onpro.experiments.sweep import read_sweep

    return carry_out(read_sweep(file), command.runs, what=str(file))
