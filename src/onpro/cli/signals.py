"""Signals that ask a run to stop, and how it hears of them."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

ASKING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Ctrl-C, the end of a job, and the end of the terminal where the system knows that."""

GOES_ON = "interrupted; what is done so far is kept, and the same command goes on from there."
"""Said where several runs were interrupted."""


def heard() -> list[int]:
    """The signals that ask a run to stop, but for those the process ignores, as nohup has it do."""
    return [n for n in ASKING if signal.getsignal(n) not in (signal.SIG_IGN, None)]


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Make the first such signal a request, which the run answers when it can save itself.

    Gives a function that returns the number of the signal that arrived, None if none has. A second
    signal does what it always does: it ends the process at once. So does the first one, where the
    run has ended by itself in the meantime.
    """
    arrived: list[int] = []
    before = {number: signal.getsignal(number) for number in heard()}

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


@contextmanager
def importing() -> Iterator[None]:
    """End the process at Ctrl-C, as the system does.

    An exception in the middle of an import may be taken for something else, or be swallowed.
    """
    usual = signal.getsignal(signal.SIGINT)
    if usual is not signal.default_int_handler or current_thread() is not main_thread():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
