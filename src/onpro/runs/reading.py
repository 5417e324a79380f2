"""Load finished runs from their folders."""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.runs.files import read_json
from onpro.runs.runner import Finished
from onpro.runs.schema import fault
from onpro.text import visible

LOG = logging.getLogger(__name__)

Skipped = Callable[[Path, str], None]
"""Called with a skipped folder and the reason."""


def warn(folder: Path, reason: str) -> None:
    """Report a skipped folder on standard error."""
    sys.stderr.write(f"onpro: skipped {visible(str(folder))}: {visible(reason)}.\n")


def read_runs(paths: Iterable[Path], *, skipped: Skipped = warn) -> list[Finished]:
    """Load the finished runs in the given folders.

    A folder without a usable result is skipped and reported. A run that is given twice, or as a
    copy in another folder, counts once. Results of older versions without a checksum are loaded
    with a warning.

    Args:
        paths: Run folders, or folders that contain run folders.
        skipped: Called for each skipped folder.

    Raises:
        UserError: If a path does not exist, or there is no finished run at all.
    """
    runs: dict[str, Finished] = {}
    places = list(paths)
    for path in places:
        if not path.exists():
            raise UserError(f"there is no folder {path}.")
        for folder in _candidates(path):
            result, complaint = _read(folder)
            if complaint:
                skipped(folder, complaint)
            else:
                # Unique, since a result includes times; copies of a run are one run.
                content = result.get("checksum") or json.dumps(result, sort_keys=True)
                runs.setdefault(content, Finished(folder, result))
    if not runs:
        named = ", ".join(str(path) for path in places)
        raise UserError(f"there is no finished run in {named}: run one with onpro run.")
    unchecked = sum("checksum" not in run.result for run in runs.values())
    if unchecked:
        LOG.warning("%d of %d results have no checksum: read unchecked.", unchecked, len(runs))
    return list(runs.values())


def _candidates(path: Path) -> Iterator[Path]:
    """Yield the run folders at any depth, and folders without any folder that are none."""
    waiting, met = [path], set()
    while waiting:
        folder = waiting.pop()
        try:
            inside = sorted(folder.iterdir())
            if any(entry.name in ("result.json", "config.json") for entry in inside):
                yield folder
                continue
            folders = [p for p in inside if p.is_dir() and not p.name.startswith(".")]
        except OSError:  # a file, or a folder that may not be read
            yield folder
            continue
        if folder is not path and not folders:
            yield folder
        real = folder.resolve()
        if real not in met:  # a link may lead back
            met.add(real)
            waiting += reversed(folders)


def _read(folder: Path) -> tuple[Any, str | None]:
    """Return the result in a folder, and the reason if it cannot be used, as a clause."""
    path = folder / "result.json"
    try:
        if path.is_file():
            result = read_json(path)
            return result, fault(result)
        unfinished = (folder / "config.json").is_file()
    except UserError as error:
        return None, str(error).removesuffix(".")
    except OSError as error:
        return None, f"it cannot be read ({error.strerror})"
    return None, "the run is not finished" if unfinished else "it is not the folder of a run"
