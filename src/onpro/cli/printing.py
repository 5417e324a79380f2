"""Plain tables on the terminal."""

from collections.abc import Sequence
from typing import TextIO

from onpro.text import fit, visible


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], file: TextIO | None = None
) -> None:
    """Print a table that folds long cells to the width of the terminal, where possible by words."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table

    class Terminal(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # for the command to handle; rich would exit with status 1

    console = Terminal(file=file, markup=False, highlight=False)
    lines = [[*map(visible, line)] for line in (header, *rows)]
    columns = list(zip(*lines, strict=True))
    whole = [max(map(cell_len, column)) for column in columns]
    words = [max(map(cell_len, " ".join(column).split()), default=0) for column in columns]
    tight = console.width - (len(header) - 1)  # one space between columns
    loose = tight - 2 * len(header)  # three, and one at the edges
    padded = sum(whole) <= loose or (sum(whole) > tight and sum(words) <= loose)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, padded), show_edge=padded)
    widths = fit(whole, words, loose if padded else tight)
    for name, width in zip(lines[0], widths, strict=True):
        table.add_column(name, overflow="fold", width=width)
    for row in lines[1:]:
        table.add_row(*row)
    console.print(table)
