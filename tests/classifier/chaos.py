"""Processes of several threads save and load the same files and are killed at any moment.

    python -m tests.classifier.chaos FOLDER OPERATIONS SEED

Prints what was done as JSON. A process of its own, because it forks: it must have no threads.
"""

import json
import os
import random
import signal
import stat
import sys
import threading
import time
import traceback
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # read when torch loads, which then starts no threads

import numpy as np

from onpro import OnlineClassifier
from onpro.files import is_leftover
from onpro.nn import ENCODERS
from tests.classifier import glance

VARIANTS, WORKERS, THREADS, SHARED = 8, 4, 3, 3


def variant(number: int) -> OnlineClassifier:
    """A classifier that can be told from others by what it has learned."""
    images = np.random.default_rng(number).integers(0, 256, (number + 1, 8, 8, 3), dtype=np.uint8)
    classifier = OnlineClassifier(
        "er", memory=20, seed=number, device="cpu", encoder=glance.NAME, replay_batch=2
    )
    return classifier.partial_fit(images, [f"v{number}"] * len(images))


class Chaos:
    """What all processes know: classifiers, files, and where to note what they did."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.classifiers = [variant(number) for number in range(VARIANTS)]
        self.shared = [folder / f"shared-{number}" for number in range(SHARED)]
        self.own = [folder / f"own-{slot}" for slot in range(WORKERS)]
        for path in (*self.shared, *self.own):
            self.classifiers[0].save(path)

    def note(self, name: str, text: str) -> None:
        """Append to a file in one call, so that a kill leaves it or not."""
        handle = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(handle, text.encode())
        os.close(handle)

    def load(self, path: Path) -> int:
        """The variant that a file holds, all of it."""
        loaded = OnlineClassifier.load(path, device="cpu")
        number = loaded.n_seen_ - 1
        assert loaded.classes_.tolist() == [f"v{number}"]
        assert len(loaded.memory_.images) == number + 1
        np.testing.assert_array_equal(
            loaded.memory_.images, self.classifiers[number].memory_.images
        )
        return number

    def work(self, slot: int, rng: random.Random, owns: bool) -> None:
        """Save and load until killed."""
        try:
            while True:
                number = rng.randrange(VARIANTS)
                if owns:
                    self.note(f"log-{slot}", f"{number}?\n")
                    self.classifiers[number].save(self.own[slot])
                    self.note(f"log-{slot}", f"{number}\n")
                    assert self.load(self.own[slot]) == number
                elif rng.randrange(2):
                    self.classifiers[number].save(rng.choice(self.shared))
                else:
                    self.load(rng.choice(self.shared))
                self.note("operations", ".." if owns else ".")
        except BaseException:
            self.note("errors", traceback.format_exc())

    def start(self, slot: int, seed: int) -> int:
        """A process at work; its number."""
        process = os.fork()
        if process:
            return process
        for thread in range(THREADS):
            rng = random.Random(f"{seed} {slot} {thread}")
            threading.Thread(target=self.work, args=(slot, rng, thread == 0)).start()
        signal.pause()
        os._exit(1)

    def check_own(self, slot: int) -> None:
        """After a kill, a file holds what was saved last, or what has been begun since."""
        log = self.folder / f"log-{slot}"
        allowed = {0}
        for line in log.read_text().split() if log.exists() else []:
            number = int(line.rstrip("?"))
            allowed = allowed | {number} if line.endswith("?") else {number}
        assert self.load(self.own[slot]) in allowed


def end(process: int) -> None:
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)


def main(folder: Path, operations: int, seed: int) -> dict[str, int]:
    """Let them work until so much is done, and kill one now and then."""
    chaos, rng, kills = Chaos(folder), random.Random(seed), 0
    done, errors = folder / "operations", folder / "errors"
    done.touch()
    processes = {slot: chaos.start(slot, slot) for slot in range(WORKERS)}
    try:
        while done.stat().st_size < operations and not errors.exists():
            until = done.stat().st_size + rng.randrange(1, 20)
            while done.stat().st_size < until and not errors.exists():
                time.sleep(0.001)
            slot = rng.randrange(WORKERS)
            end(processes.pop(slot))
            kills += 1
            chaos.check_own(slot)
            processes[slot] = chaos.start(slot, WORKERS + kills)
    finally:
        for process in processes.values():
            end(process)
    for slot in range(WORKERS):
        chaos.check_own(slot)
    for path in (*chaos.shared, *chaos.own):
        chaos.load(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return {
        "operations": done.stat().st_size,
        "kills": kills,
        "errors": errors.read_text().count("Traceback") if errors.exists() else 0,
        "leftovers": sum(is_leftover(path.name) for path in folder.iterdir()),
    }


if __name__ == "__main__":
    ENCODERS[glance.NAME] = glance.KIND
    outcome = main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps(outcome))  # noqa: T201 # the answer
