"""Signals that ask a run to stop, and how it hears of them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Make the first Ctrl-C or SIGTERM a request, which the run answers when it can save itself.

    Gives a function that returns the number of the signal that arrived, None if none has. A second
    signal does what it always does: it ends the process at once. So does the first one, where the
    run has ended by itself in the meantime.
    """
    arrived: list[int] = []
    before = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None)
    }

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def request(number: int, frame: FrameType | None) -> None:
        arrived.append(number)
        restore()

    for number in before:
        signal.signal(number, request)
    try:
        yield lambda: arrived[0] if arrived else None
    finally:
        restore()
    if arrived:
        signal.raise_signal(arrived[0])
