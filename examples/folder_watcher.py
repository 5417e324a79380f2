"""Learn from image files as they appear in a folder with a subfolder for each class.

    python examples/folder_watcher.py photos birds.onpro

Add photos/wren/1.jpg, photos/robin/2.png, …; new subfolders are new classes. The classifier is
saved whenever something has been learned, every half minute while there is much to learn, and on
Ctrl-C or SIGTERM. The learned files are listed beside it, in birds.onpro.learned.json, so that it
resumes when started again. A file that cannot be read is reported once and tried again when it has
changed; a save that fails is tried again after the next image. Only regular files are read.
"""
# ruff: noqa: T201 # an example may print

import argparse
import json
import signal
import sys
import time
from collections.abc import Sized
from pathlib import Path

from PIL import Image

from onpro import OnlineClassifier
from onpro.files import replacing

ENDINGS = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


def watch(
    folder: Path, saved: Path, over: Sized, pause: float = 1.0, save_every: float = 30.0
) -> None:
    """Learn new files and save, until `over` is not empty."""
    notes = saved.with_name(saved.name + ".learned.json")
    try:
        learned = set(json.loads(notes.read_text())) if notes.exists() else set()
        classifier = OnlineClassifier.load(saved) if saved.exists() else None
    except (OSError, ValueError) as error:
        raise SystemExit(f"{saved} and {notes} do not say where to go on: {error}") from error
    if classifier is None:
        classifier = OnlineClassifier("er", memory=200, image_size=32)
    else:
        say(f"going on with {len(classifier.classes_)} classes, {classifier.n_seen_} images")
    tried: dict[str, object] = {}
    while not len(over):
        unsaved, last_save = 0, time.monotonic()
        for file in sorted(folder.glob("*/*")):
            name = file.relative_to(folder).as_posix()
            if len(over) or name in learned or file.suffix.lower() not in ENDINGS:
                continue
            seen = looks(file)
            if seen is None or tried.get(name) == seen:
                continue
            tried[name] = seen
            try:
                with Image.open(file) as image:
                    classifier.partial_fit([image], [file.parent.name])
            except (OSError, ValueError) as error:  # perhaps it is still being copied
                say(f"{name} is left until it changes: {error}")
                continue
            learned.add(name)
            unsaved += 1
            say(f"learned {name}")
            if time.monotonic() - last_save > save_every:
                save(classifier, saved, learned, notes)
                unsaved, last_save = 0, time.monotonic()
        if unsaved:
            save(classifier, saved, learned, notes)
        time.sleep(pause)


def looks(file: Path) -> object:
    """Return size and time of a regular file, which change when it does; None if it is none.

    Pipes would block; broken and circular links are not files.
    """
    try:
        now = file.stat() if file.is_file() else None
    except OSError as error:  # a folder without permissions
        return error.errno
    return None if now is None else (now.st_size, now.st_mtime_ns)


def save(classifier: OnlineClassifier, saved: Path, learned: set[str], notes: Path) -> None:
    """Write both files atomically, the list last, so that a crash loses no image."""
    try:
        classifier.save(saved)
        with replacing(notes) as file:
            file.write(json.dumps(sorted(learned)).encode())
    except OSError as error:
        say(f"not saved: {error}")
    else:
        say(f"saved {saved}")


def say(text: str) -> None:
    """Print a text with names of files; characters that cannot be printed are escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    encoding = sys.stdout.encoding or "ascii"
    print(shown.encode(encoding, "backslashreplace").decode(encoding), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("saved", type=Path)
    given = parser.parse_args()
    for needed in (given.folder, given.saved.parent):
        if not needed.is_dir():
            parser.error(f"there is no folder {needed}")
    signals: list[int] = []  # an exception could interrupt a step
    for kind in (signal.SIGINT, signal.SIGTERM):
        signal.signal(kind, lambda number, _: signals.append(number))
    watch(given.folder, given.saved, signals)
