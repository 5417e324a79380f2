"""Handling of the signals that stop a command."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from types import FrameType

STOPPING = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""Ctrl-C, the end of a job, and the end of the terminal where the system has that."""


def handled_signals() -> list[int]:
    """Return the signals that stop a run, but for those that the process ignores (nohup)."""
    return [n for n in STOPPING if signal.getsignal(n) not in (signal.SIG_IGN, None)]


@contextmanager
def stop_requests() -> Iterator[Callable[[], int | None]]:
    """Note the first signal, so that the run can save a checkpoint before it ends.

    Gives a function that returns the number of the signal that arrived, None if none has. A second
    signal ends the process at once. So does the first, after the run has ended by itself.
    """
    arrived: list[int] = []
    before = {number: signal.getsignal(number) for number in handled_signals()}

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

    An exception in the middle of an import may be swallowed or taken for something else.
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
