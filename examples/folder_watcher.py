"""Learns from image files as they appear in a folder with a subfolder for each class.

    python examples/folder_watcher.py PHOTOS birds.onpro

Drop PHOTOS/wren/1.jpg, PHOTOS/robin/2.png, …; new subfolders are new classes. Ctrl-C saves; started
again, it goes on where it was. What has been learned is listed beside the classifier.
"""
# ruff: noqa: T201 # an example may print

import argparse
import json
import signal
import time
from collections.abc import Sized
from pathlib import Path

from PIL import Image

from onpro import OnlineClassifier

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


def watch(folder: Path, saved: Path, over: Sized, pause: float = 1.0) -> None:
    """Look for new files until `over` holds something, then save."""
    notes = saved.with_name(saved.name + ".learned.json")
    learned = set(json.loads(notes.read_text())) if notes.exists() else set()
    if saved.exists():
        classifier = OnlineClassifier.load(saved)
        print(f"going on with {len(classifier.classes_)} classes, {classifier.n_seen_} images")
    else:
        classifier = OnlineClassifier("er", memory=500, image_size=32)
    while not len(over):
        for file in sorted(folder.glob("*/*")):
            name = file.relative_to(folder).as_posix()
            if len(over) or name in learned or file.suffix.lower() not in ENDINGS:
                continue
            try:
                with Image.open(file) as image:
                    classifier.partial_fit([image], [file.parent.name])
            except (OSError, ValueError) as error:  # perhaps it is still being copied
                print(f"{name} is left for later: {error}")
                continue
            learned.add(name)
            print(f"learned {name}")
        time.sleep(pause)
    if learned:
        classifier.save(saved)
        notes.write_text(json.dumps(sorted(learned)))
        print(f"saved {saved}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("saved", type=Path)
    given = parser.parse_args()
    interrupted: list[int] = []  # rather than an exception in the middle of a step
    signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    watch(given.folder, given.saved, interrupted)
