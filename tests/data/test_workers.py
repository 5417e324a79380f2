"""Processes that decode images."""

import fcntl
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onpro.data import worker, workers
from onpro.data.decode import Encoded, Pixels
from onpro.data.workers import decode_all, decoded
from onpro.errors import UserError

SIZE = 4


class Numbered:
    """Images whose pixels are their number, of which it is noted which were asked for."""

    size, digest = SIZE, "numbered"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[int] = []
        for number in range(100):
            pixels = np.full((SIZE, SIZE, 3), number, np.uint8)
            Image.fromarray(pixels).save(self.path(number))

    def __len__(self) -> int:
        return 100

    def path(self, number: int) -> Path:
        return self.folder / f"{number}.png"

    def encoded(self, index: int) -> Encoded:
        self.asked.append(index)
        path = self.path(index)
        return Encoded(path.read_bytes() if index % 2 else str(path), str(path))

    def check(self) -> None:
        raise NotImplementedError

    def stop_at(self, number: int) -> Path:
        """Let the worker that decodes an image wait for it."""
        self.path(number).unlink()
        os.mkfifo(self.path(number))
        return self.path(number)


@pytest.fixture
def images(tmp_path: Path) -> Numbered:
    return Numbered(tmp_path)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list["subprocess.Popen[bytes]"]:
    """The workers that are started, two at most."""
    found: list[subprocess.Popen[bytes]] = []

    def popen(*given: Any, **options: Any) -> "subprocess.Popen[bytes]":
        found.append(subprocess.Popen(*given, **options))
        return found[-1]

    monkeypatch.setattr(workers, "cores", lambda: 3)
    monkeypatch.setattr(workers, "WORTH_A_WORKER", 32)
    monkeypatch.setattr(workers, "Popen", popen)
    return found


def in_batches(first: int, stop: int, length: int) -> list[list[int]]:
    return [list(range(k, min(k + length, stop))) for k in range(first, stop, length)]


def numbers(pixels: Pixels) -> list[int]:
    assert pixels.shape[1:] == (3, SIZE, SIZE)
    assert (pixels == pixels[:, :1, :1, :1]).all()
    return [int(number) for number in pixels[:, 0, 0, 0]]


@contextmanager
def held(fifo: Path) -> Iterator[None]:
    """Wait until a worker has opened a named pipe, and let it wait inside the context."""
    deadline = time.monotonic() + 60
    while True:
        try:
            writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    yield
    os.close(writer)


def test_images_are_decoded_ahead_in_order_but_not_all(
    images: Numbered,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "AHEAD", 20)
    order = list(range(99, -1, -1))
    batches = decoded(images, [order[k : k + 5] for k in range(0, 100, 5)])
    for k in range(3):
        assert numbers(next(batches)) == order[5 * k : 5 * k + 5]
        assert images.asked == order[: 5 * k + 20]
    assert [n for pixels in batches for n in numbers(pixels)] == order[15:]
    assert len(started) == 2
    assert all(process.returncode is not None for process in started), "they have ended"


def test_a_worker_decodes_while_nobody_asks(
    images: Numbered, started: list["subprocess.Popen[bytes]"]
) -> None:
    fifo = images.stop_at(50)
    batches = decoded(images, in_batches(0, 100, 10))
    next(batches)
    with held(fifo):
        batches.close()


def test_a_damaged_image_is_named_when_its_batch_is_due(
    images: Numbered, started: list["subprocess.Popen[bytes]"]
) -> None:
    images.path(42).write_bytes(b"no image")
    images.path(43).write_bytes(b"")
    batches = decoded(images, in_batches(0, 100, 10))
    for _ in range(4):
        next(batches)
    with pytest.raises(UserError, match=r"the image .*42\.png cannot be read"):
        next(batches)
    assert all(process.returncode is not None for process in started)
    with pytest.raises(UserError, match=r"43\.png is missing"):
        list(decoded(images, in_batches(43, 99, 10)))


@pytest.mark.parametrize("how", ["close", "delete", "error"])
def test_batches_that_nobody_reads_on_leave_no_process(
    images: Numbered, started: list["subprocess.Popen[bytes]"], how: str
) -> None:
    fifo = images.stop_at(90)
    batches = decoded(images, in_batches(0, 100, 10))
    next(batches)
    with held(fifo):
        if how == "close":
            batches.close()
        elif how == "delete":
            del batches
            gc.collect()
        else:
            with pytest.raises(KeyboardInterrupt):
                batches.throw(KeyboardInterrupt)
        assert len(started) == 2
        assert all(process.returncode is not None for process in started)


def test_splits_that_are_read_in_turn_share_the_workers(
    images: Numbered, started: list["subprocess.Popen[bytes]"]
) -> None:
    training = decoded(images, in_batches(0, 100, 10))
    next(training)
    for _ in range(3):
        test = [n for pixels in decoded(images, [list(range(70))]) for n in numbers(pixels)]
        assert test == list(range(70))
    assert [n for pixels in training for n in numbers(pixels)] == list(range(10, 100))
    assert len(started) == 2


def test_a_worker_that_is_killed_ends_the_run_with_a_sentence(
    images: Numbered, started: list["subprocess.Popen[bytes]"]
) -> None:
    fifo = images.stop_at(90)
    batches = decoded(images, in_batches(0, 100, 10))
    next(batches)
    with held(fifo):
        for process in started:
            os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(UserError, match=r"was killed by signal 9; .*resume the run"):
            list(batches)
    images.path(90).unlink()
    Image.new("RGB", (SIZE, SIZE)).save(images.path(90))
    assert len(list(decoded(images, in_batches(0, 100, 10)))) == 10, "with new workers"
    assert len(started) == 4
    assert all(process.returncode is not None for process in started)


def test_a_worker_that_cannot_be_started(
    images: Numbered, started: list["subprocess.Popen[bytes]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: Any, **options: Any) -> "subprocess.Popen[bytes]":
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(subprocess.Popen(*given, **options))
        return started[-1]

    monkeypatch.setattr(workers, "Popen", refused)
    with pytest.raises(UserError, match=r"can be started \(Resource temporarily unavailable\)"):
        list(decoded(images, in_batches(0, 100, 10)))
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_workers_of_a_daemon(
    images: Numbered,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert len(list(decoded(images, in_batches(0, 100, 10)))) == 10
    assert len(started) == 2


def test_few_images_or_a_single_core_need_no_worker(
    images: Numbered,
    started: list["subprocess.Popen[bytes]"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert [numbers(p) for p in decoded(images, in_batches(0, 31, 8))] == in_batches(0, 31, 8)
    monkeypatch.setattr(workers, "cores", lambda: 1)
    assert [numbers(p) for p in decoded(images, in_batches(0, 100, 9))] == in_batches(0, 100, 9)
    assert not started


def test_a_process_that_waits_leaves_no_cpu_to_itself(
    images: Numbered, started: list["subprocess.Popen[bytes]"]
) -> None:
    assert numbers(decode_all(images, range(99, -1, -1), "")) == list(range(99, -1, -1))
    assert len(started) == 3


def test_large_images_are_decoded_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "LARGE", 12)
    files = []
    for width in (4, 5):
        files.append(Encoded(str(tmp_path / f"{width}.png"), ""))
        Image.new("RGB", (width, 3)).save(tmp_path / f"{width}.png")
    pixels = np.empty((2, 3, SIZE, SIZE), np.uint8)
    with TemporaryFile() as turn:
        locked: list[int] = []
        monkeypatch.setattr(fcntl, "lockf", lambda _, kind: locked.append(kind))
        assert worker._carry_out(worker.Task(0, 0, files[:1]), pixels, turn.fileno()) == ""
        assert not locked
        assert worker._carry_out(worker.Task(0, 0, files), pixels, turn.fileno()) == ""
        assert locked == [fcntl.LOCK_EX, fcntl.LOCK_UN]


SCRIPT = """
import os, signal, sys
from pathlib import Path
from onpro.data import workers

from onpro.data.decode import Encoded, Pixels

class Images:
    size = 4
    def encoded(self, index):
        return Encoded(f"{sys.argv[1]}/{index}.png", "")

workers.cores = lambda: 3
workers.WORTH_A_WORKER = 32
batches = workers.decoded(Images(), [[k] for k in range(100)])
next(batches), next(batches)  # one of each worker
try:
    print(*(w.process.pid for w in workers._shared._workers), flush=True)
    signal.pause()
except KeyboardInterrupt:
    unread = workers.decoded(Images(), [[k] for k in range(100)])  # is there at the end
    next(unread)
    print(2 + len(list(batches)), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_process_and_not_at_an_interrupt(
    images: Numbered, number: signal.Signals
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(images.folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        if number == signal.SIGINT:  # to the whole group, as a terminal sends it, and more
            for pid in pids:
                os.kill(pid, number)
        os.killpg(process.pid, number)
        # Workers hold standard error, so that its end is that of the last of them.
        out, err = process.communicate(timeout=60)
    assert out.split() == (["100"] if number == signal.SIGINT else [])
    assert err == ""
