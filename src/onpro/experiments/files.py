"""Files of a run: written whole or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from onpro.errors import UserError


def write_json(path: Path, value: Any) -> None:
    """Write a file that is there completely or not at all, even after a crash."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("w") as file:
            json.dump(value, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    """The content of a JSON file; a sentence where it is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


@contextmanager
def writing_below(folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into a sentence that names the folder."""
    try:
        yield
    except BrokenPipeError:
        raise  # no file has refused: whoever read what a listener prints has gone
    except OSError as error:
        raise _cannot_write(folder, error.strerror or str(error)) from error


def require_writable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written in, before any work is done for it."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise _cannot_write(folder, f"{there} is a file")
    if not os.access(there, os.W_OK | os.X_OK):
        raise _cannot_write(folder, "permission denied")


def _cannot_write(folder: Path, reason: str) -> UserError:
    return UserError(
        f"cannot write in {folder}: {reason.lower()}; make room there or give another --out."
    )
