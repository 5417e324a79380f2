"""`onpro figure NAME RUN…`: draw a figure from finished runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import tyro

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.cli.signals import importing
from onpro.errors import UserError, unknown
from onpro.text import visible


@dataclass(frozen=True)
class FigureOptions:
    """What to draw, from what, to where."""

    name: tyro.conf.Positional[str] = field(default="", metadata={"metavar": "NAME"})
    """Name of the figure: accuracy, compute, confusion, forgetting, matrix, replay, sweep or time;
    see --list."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = field(default=(), metadata={"metavar": "RUN..."})
    """Run folders, or folders that contain run folders at any depth."""

    list: bool = False
    """List the figures."""

    out: Path | None = None
    """File to write, whose ending gives the format (png, pdf, svg), or a folder for NAME.png.
    (default: NAME.png)"""

    width: Literal["column", "page"] = "page"
    """Width for a column (3.35 inches) or a page (6.9 inches) of a paper."""

    x: str = ""
    """Horizontal axis of sweep (a setting) or compute (seconds or images)."""

    measure: str = "accuracy"
    """Vertical axis of sweep: accuracy, forgetting, incremental or seconds."""


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
        from onpro.figures.style import Options
        from onpro.runs.reading import read_runs

    if options.list:
        listed = [
            [name, (figure.__doc__ or "").splitlines()[0]] for name, figure in FIGURES.items()
        ]
        print_table(["name", "what"], listed)
        return 0
    if options.name not in FIGURES or not options.runs:
        if options.name and options.name not in FIGURES:
            raise unknown("figure", options.name, FIGURES)
        raise UserError("name a figure and run folders: onpro figure accuracy runs; see --list.")
    path = _file(options.out or Path(), options.name)
    chosen = Options(options.width, options.x, options.measure)
    draw(options.name, found(read_runs(options.runs)), path, chosen)
    print(f"saved {visible(str(path))}")
    return 0


def _file(path: Path, name: str) -> Path:
    """The file that is meant: in a folder one of the figure's name, without an ending a PNG."""
    if path.is_dir():
        return path / f"{name}.png"
    return path if path.suffix else path.with_suffix(".png")
