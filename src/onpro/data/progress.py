"""How far something that takes long has come, said now and then."""

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger(__name__)

EVERY = 10.0
"""Seconds between two lines."""


def saying(what: str, total: int) -> Callable[[int], None]:
    """A function to tell how much of the total is done, which says it every few seconds."""
    last = time.monotonic()

    def say(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            LOG.warning("%s: %d %%", what, 100 * done // total)

    return say
