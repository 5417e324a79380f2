"""`onpro pack FILE RUN…`: store finished runs in one file."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError, counted
from onpro.text import visible


@dataclass(frozen=True)
class Command:
    """Which runs to store, and where."""

    file: tyro.conf.Positional[Path | None] = field(default=None, metadata={"metavar": "FILE"})
    """File to add the runs to, with one line each; its name ends in .jsonl. It is created if it
    does not exist."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = field(default=(), metadata={"metavar": "RUN..."})
    """Run folders, packed files, or folders that contain them at any depth."""

    replace: bool = False
    """Replace a result in the file by another result of the same run, instead of refusing it."""


def main(arguments: Sequence[str]) -> int:
    """Add runs to a file."""
    about = (
        "Add finished runs to a file that holds configuration and result of each in one line.\n\n"
        "The commands report, figure, table and sweep read such a file like a folder of runs. "
        "Models and logs stay in the run folders, which are not changed."
    )
    options = parse(Command, arguments, command="onpro pack", about=about)
    if options.file is None or not options.runs:
        raise UserError("name a file and runs: onpro pack results.jsonl runs.")
    with importing():
        from onpro.runs.packing import pack

    changed, total = pack(options.file, options.runs, replace=options.replace)
    print(f"{visible(str(options.file))}: {counted(changed, 'run')} added, {total} in all")
    return 0
