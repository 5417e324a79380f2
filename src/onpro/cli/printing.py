"""Plain tables on the terminal."""

from collections.abc import Sequence
from typing import TextIO

from onpro.text import visible


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], file: TextIO | None = None
) -> None:
    """Print a table that folds long cells to the width of the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for the command to handle; rich would exit with status 1

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in header:
        table.add_column(visible(name), overflow="fold")
    for row in rows:
        table.add_row(*map(visible, row))
    Terminal(file=file, markup=False, highlight=False).print(table)
