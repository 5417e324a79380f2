"""Progress of loading: a bar on a terminal, log messages elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from onpro.text import visible

LOG = logging.getLogger(__name__)

LOG_INTERVAL = 10.0
"""Seconds between log messages."""


@contextmanager
def showing(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show progress; yields a function that advances it by a number of steps.

    Args:
        title: what is under way, such as "decoding 300 images".
        total: number of steps.
    """
    from rich.console import Console
    from rich.file_proxy import FileProxy
    from rich.markup import escape
    from rich.progress import Progress

    title = visible(title)
    # While another bar is shown, standard error is its proxy, which cannot show a second one.
    if sys.stderr.isatty() and not isinstance(sys.stderr, FileProxy):
        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task(escape(title), total=total)
            yield lambda steps: bar.advance(task, steps)
        return
    done, logged = 0, time.monotonic()

    def advance(steps: int) -> None:
        nonlocal done, logged
        done += steps
        if time.monotonic() - logged >= LOG_INTERVAL:
            logged = time.monotonic()
            LOG.warning("%s: %d %%", title, 100 * done // total)

    yield advance
