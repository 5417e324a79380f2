"""A fair lock."""

from threading import Lock


class FairLock:
    """A lock that threads get in turn: one that has just released it queues behind the waiting.

    A thread waits for the lock proper while it holds the queue, so that the one that releases the
    lock and comes back at once cannot overtake it.
    """

    def __init__(self) -> None:
        self._queue, self._lock = Lock(), Lock()

    def __enter__(self) -> None:
        with self._queue:
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
