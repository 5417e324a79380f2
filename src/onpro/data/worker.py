"""The program of a process that decodes images for another, see `onpro.data.workers`.

It ends when its socket closes, which happens whatever ends the process it works for.
"""

import mmap
import os
import signal
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import numpy as np

from onpro.data.decode import MOST_PIXELS_AT_ONCE, Encoded, Pixels, decode_image
from onpro.errors import UserError

MOST_WORKERS = 16
"""Largest number of workers; as many decode about 3,000 images of ImageNet per second."""

LARGE = MOST_PIXELS_AT_ONCE // MOST_WORKERS
"""Workers decode images with more pixels one at a time."""


class Frames:
    """Decoded images in memory that processes share.

    Args:
        number: identifies the memory.
        file: file descriptor of the memory, which is mapped.
        shape: number of images, and their side in pixels.
    """

    def __init__(self, number: int, file: int, shape: tuple[int, int]) -> None:
        self.number, self.file, self.shape = number, file, shape
        images, size = shape
        memory = mmap.mmap(file, images * 3 * size**2)
        self.pixels: Pixels = np.frombuffer(memory, np.uint8).reshape(images, 3, size, size)


class Task(NamedTuple):
    """What a worker is asked for: to decode images to consecutive frames."""

    frames: int
    start: int
    encoded: list[Encoded]


def main() -> None:
    """Decode images as a worker.

    The first argument is the file descriptor of a socket. It brings tasks and memory to map or
    unmap; an error, or "", is sent back for each task. The second is a file that is locked while a
    large image is decoded.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # the main process ends its workers itself
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    warnings.simplefilter("ignore")
    pipe, turn = Connection(int(sys.argv[1])), int(sys.argv[2])
    received: SimpleQueue[Task | Frames | int] = SimpleQueue()
    Thread(target=_receive, args=(pipe, received), daemon=True).start()
    mapped: dict[int, Pixels] = {}
    while True:
        task = received.get()
        if isinstance(task, Frames):
            mapped[task.number] = task.pixels
        elif isinstance(task, int):
            del mapped[task]
        else:
            error = _carry_out(task, mapped[task.frames], turn)
            try:
                pipe.send(error)
            except OSError:  # the main process has ended
                return


def _receive(pipe: Connection, received: "SimpleQueue[Task | Frames | int]") -> None:
    """Take what comes through the pipe, so that the sender does not wait; end with the sender."""
    with suppress(EOFError, OSError):
        while True:
            message = pipe.recv()
            if type(message) is tuple:
                number, shape = message
                with socket.socket(fileno=os.dup(pipe.fileno())) as raw:
                    _, (file,), *_ = socket.recv_fds(raw, 1, 1)
                message = Frames(number, file, shape)
                os.close(file)
            received.put(message)
    os._exit(1)


def _carry_out(task: Task, pixels: Pixels, turn: int) -> str:
    """Decode the images of a task and return what is wrong with one of them."""

    def quota(amount: int) -> AbstractContextManager[None]:
        return _locked(turn) if amount > LARGE else nullcontext()

    try:
        for row, encoded in enumerate(task.encoded, task.start):
            pixels[row] = decode_image(encoded, pixels.shape[-1], quota)
    except UserError as error:
        return str(error)
    except MemoryError:
        return "there is not enough memory to decode images; free some, and resume the run."
    return ""


@contextmanager
def _locked(file: int) -> Iterator[None]:
    import fcntl

    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)
