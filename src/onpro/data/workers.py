"""Processes that decode images for this one, ahead of the time they are needed.

Threads do not scale to many cores, because they wait for each other's memory allocations. The
workers import neither torch nor the main script, so that each starts in a fraction of a second and
takes about 46 MB; those of torch's `DataLoader` do one or the other, or are forked from a process
that uses a GPU. They work for all splits of a process, share a batch between them, and live as
long as batches are being read. See `onpro.data.worker` for their program.
"""

import atexit
import os
import socket
import sys
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from multiprocessing.connection import Connection, wait
from subprocess import DEVNULL, Popen
from tempfile import TemporaryFile
from threading import RLock
from typing import IO

import numpy as np

from onpro.data.decode import Encoded, Images, Pixels, decode_image
from onpro.data.progress import showing
from onpro.data.worker import MOST_WORKERS, Frames, Task
from onpro.errors import UserError

AHEAD = 256
"""Images decoded ahead of those that are needed next."""

WORTH_A_WORKER = 128
"""Number of images for which another worker is started; starting it takes as long as decoding
about a hundred images of ImageNet."""

CHUNK = 64
"""Images between two steps of a progress bar."""

PIECE = 5
"""Largest number of images that a worker is asked for at a time."""

MAIN = "from onpro.data.worker import main; main()"
"""Program of a worker."""

ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Keeps NumPy from starting threads in a worker."""


def decode_all(images: Images, indices: Sequence[int], title: str) -> Pixels:
    """Decode images to uint8 (n, 3, size, size) and show progress.

    Args:
        images: the encoded images.
        indices: which of them.
        title: description of the progress bar.
    """
    pixels = np.empty((len(indices), 3, images.size, images.size), np.uint8)
    starts = range(0, len(indices), CHUNK)
    chunks = [indices[start : start + CHUNK] for start in starts]
    with (
        showing(title, len(indices)) as advance,
        closing(decoded(images, chunks, idle=True)) as decoding,
    ):
        for start, chunk in zip(starts, decoding, strict=True):
            pixels[start : start + len(chunk)] = chunk
            advance(len(chunk))
    return pixels


def decoded(
    images: Images, batches: Sequence[Sequence[int]], *, idle: bool = False
) -> Generator[Pixels]:
    """Yield batches of images as uint8 (n, 3, size, size), decoded ahead by workers.

    Where another process would not help, each batch is decoded here when it is asked for.

    Args:
        images: the encoded images.
        batches: indices of the images of each batch.
        idle: whether this process has nothing else to do, so that no CPU is left to it.

    Yields:
        An array that is valid until the next one is asked for.
    """
    sizes = [len(batch) for batch in batches]
    workers = min(most_workers(cores() - (not idle)), sum(sizes) // WORTH_A_WORKER)
    if not workers:
        for batch in batches:
            yield _decoded_here(images, batch)
        return
    largest = max(sizes)
    slots = min(len(batches), max(2, AHEAD // largest))
    with _workers(workers) as pool, _frames(pool, (slots * largest, images.size)) as frames:
        waiting: deque[list[_Piece]] = deque()
        begun = 0
        for number, size in enumerate(sizes):
            for batch in batches[begun : number + slots]:
                encoded = [images.encoded(index) for index in batch]
                waiting.append(pool.submit(frames, begun % slots * largest, encoded))
                begun += 1
            pool.wait(waiting.popleft())
            start = number % slots * largest
            yield frames.pixels[start : start + size]


def most_workers(free: int) -> int:
    """Return how many workers to start at most if so many CPUs are free for them."""
    has_sockets = hasattr(socket, "send_fds")  # not on Windows
    return min(MOST_WORKERS, free) if has_sockets and cores() > 1 else 0


def cores() -> int:
    """Return the number of cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only on Linux
        return os.cpu_count() or 1


def _decoded_here(images: Images, batch: Sequence[int]) -> Pixels:
    pixels = np.empty((len(batch), 3, images.size, images.size), np.uint8)
    for row, index in zip(pixels, batch, strict=True):
        row[...] = decode_image(images.encoded(index), images.size)
    return pixels


@dataclass
class _Piece:
    """A task that a worker has been given."""

    worker: "_Worker"
    images: int
    done: bool = False
    error: str = ""


@dataclass(eq=False)
class _Worker:
    process: "Popen[bytes]"
    pipe: Connection
    pieces: deque[_Piece] = field(default_factory=deque)
    frames: set[int] = field(default_factory=set)
    """The memory that it has mapped."""


class _Workers:
    """The workers of this process."""

    def __init__(self) -> None:
        self.lock = _lock  # splits may be read in several threads
        self.owner = os.getpid()
        self.closed = False
        self.users = 0
        self._workers: list[_Worker] = []
        self._turn = _anonymous_file()  # is locked by the worker that decodes a large image
        self._reason = ""
        atexit.register(self.close)

    def grow(self, number: int) -> None:
        """Start workers until there are so many."""
        with self.lock:
            while len(self._workers) < number:
                self._workers.append(_start(self._turn.fileno()))

    def release(self) -> None:
        """Remove a user; end the workers after the last."""
        with self.lock:
            self.users -= 1
            if not self.users:
                self.close()

    def submit(self, frames: Frames, start: int, encoded: Sequence[Encoded]) -> list[_Piece]:
        """Let the least busy workers decode images to consecutive frames."""
        with self.lock:
            busy = {worker.pipe: worker for worker in self._workers if worker.pieces}
            for pipe in wait(list(busy), timeout=0):
                self._receive(busy[pipe])  # type: ignore[index] # it is one of the pipes
            pieces = -(-len(encoded) // PIECE)
            bounds = [len(encoded) * k // pieces for k in range(pieces + 1) if pieces]
            return [
                self._send(Task(frames.number, start + a, list(encoded[a:b])), frames)
                for a, b in pairwise(bounds)
            ]

    def wait(self, pieces: Sequence[_Piece]) -> None:
        """Wait until images are decoded; a `UserError` says why they are not."""
        with self.lock:
            for piece in pieces:
                while not piece.done:
                    self._receive(piece.worker)
                if piece.error:
                    raise UserError(piece.error)

    def forget(self, frames: Frames) -> None:
        """Let the workers unmap memory."""
        with self.lock:
            for worker in self._workers:
                if frames.number in worker.frames:
                    worker.frames.remove(frames.number)
                    with suppress(ConnectionError):  # it has died
                        worker.pipe.send(frames.number)

    def close(self) -> None:
        """End the workers."""
        if self.closed or self.owner != os.getpid():
            return
        self.closed = True
        atexit.unregister(self.close)
        for worker in self._workers:
            worker.process.kill()
            worker.pipe.close()
        for worker in self._workers:
            worker.process.wait()
        self._workers.clear()
        self._turn.close()

    def _send(self, task: Task, frames: Frames) -> _Piece:
        if not self._workers:
            raise UserError(self._reason)
        worker = min(self._workers, key=lambda worker: sum(p.images for p in worker.pieces))
        piece = _Piece(worker, len(task.encoded))
        worker.pieces.append(piece)
        try:
            if frames.number not in worker.frames:
                worker.pipe.send((frames.number, frames.shape))
                with socket.socket(fileno=os.dup(worker.pipe.fileno())) as raw:
                    socket.send_fds(raw, [b"."], [frames.file])
                worker.frames.add(frames.number)
            worker.pipe.send(task)
        except ConnectionError:
            self._bury(worker)
        return piece

    def _receive(self, worker: _Worker) -> None:
        """Wait for the next answer of a worker."""
        try:
            error = worker.pipe.recv()
        except (EOFError, ConnectionError):
            self._bury(worker)
            return
        piece = worker.pieces.popleft()
        piece.done, piece.error = True, error

    def _bury(self, worker: _Worker) -> None:
        """Remove a worker that has died; what it was to decode fails."""
        status = worker.process.wait()
        how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
        self._reason = (
            f"a process that decodes images {how}; make sure that there is enough memory, "
            "and resume the run."
        )
        self._workers.remove(worker)
        worker.pipe.close()
        for piece in worker.pieces:
            piece.done, piece.error = True, self._reason


_lock = RLock()
_shared: _Workers | None = None
_numbers = count()


# At the end of the interpreter, `close` has been called, and a generator that is still there must
# not need the globals of this module to end.


@contextmanager
def _workers(number: int) -> Iterator[_Workers]:
    """Give at least so many workers, which end when nobody uses them any more."""
    global _shared
    with _lock:
        if _shared is None or _shared.closed or _shared.owner != os.getpid():  # if it has forked
            _shared = _Workers()
        pool = _shared
        pool.users += 1
    try:
        pool.grow(number)
        yield pool
    finally:
        pool.release()


@contextmanager
def _frames(pool: _Workers, shape: tuple[int, int]) -> Iterator[Frames]:
    """Give memory that is shared with the workers."""
    images, size = shape
    with _anonymous_file() as file:
        file.truncate(images * 3 * size**2)
        frames = Frames(next(_numbers), file.fileno(), shape)
        try:
            yield frames
        finally:
            pool.forget(frames)


def _anonymous_file() -> IO[bytes]:
    """Return a file without a name: in memory on Linux, where no limit of /dev/shm applies."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("onpro"), "r+b", buffering=0)
    return TemporaryFile(buffering=0)


def _start(turn: int) -> _Worker:
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            process = Popen(
                [sys.executable, "-P", "-c", MAIN, str(theirs.fileno()), str(turn)],
                stdin=DEVNULL,
                stdout=DEVNULL,
                pass_fds=(theirs.fileno(), turn),
                env=os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(sys.path)},
                process_group=0,  # Ctrl-C is for the main process
            )
        except OSError as error:
            ours.close()
            raise UserError(
                f"no process that decodes images can be started ({error.strerror}); end other "
                "processes, and resume the run."
            ) from error
    return _Worker(process, Connection(ours.detach()))
