"""`onpro figure NAME RUN…`: draw a figure from finished runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from onpro.cli.parsing import parse
from onpro.cli.signals import importing
from onpro.errors import UserError
from onpro.text import visible


@dataclass(frozen=True)
class FigureOptions:
    """What to draw, from what, to where."""

    name: tyro.conf.Positional[str] = field(default="", metadata={"metavar": "NAME"})
    """accuracy: accuracy on the tasks seen so far; matrix: accuracy on each task after each."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = field(default=(), metadata={"metavar": "RUN..."})
    """Run folders, or folders that hold some."""

    out: Path | None = None
    """File to write, its ending says the format (png, pdf, svg; without one png), or a folder for
    NAME.png; else NAME.png here."""


@dataclass(frozen=True)
class Command:
    """A figure."""

    options: FigureOptions


def main(arguments: Sequence[str]) -> int:
    """Draw the figure."""
    about = "Draw a figure from finished runs."
    options = parse(Command, arguments, command="onpro figure", about=about).options
    with importing():
        from onpro.experiments.grouping import found
        from onpro.figures import FIGURES, draw
        from onpro.runs.reading import read_runs

    if not options.runs:
        names = " or ".join(FIGURES)
        raise UserError(f"name a figure, {names}, and run folders: onpro figure accuracy runs.")
    path = _file(options.out or Path(), options.name)
    draw(options.name, found(read_runs(options.runs)), path)
    print(f"saved {visible(str(path))}")
    return 0


def _file(path: Path, name: str) -> Path:
    """The file that is meant: in a folder one of the figure's name, without an ending a PNG."""
    if path.is_dir():
        return path / f"{name}.png"
    return path if path.suffix else path.with_suffix(".png")
