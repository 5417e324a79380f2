"""Finished runs, read back from their folders."""

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
"""Told of a folder that is passed over, and why."""


def warn(folder: Path, reason: str) -> None:
    """Name a folder that is passed over on standard error."""
    sys.stderr.write(f"onpro: skipped {visible(str(folder))}: {visible(reason)}.\n")


def read_runs(paths: Iterable[Path], *, skipped: Skipped = warn) -> list[Finished]:
    """The finished runs in the given folders: run folders, or folders that hold some.

    A folder that holds no usable result is passed over and named, for a report of a thousand runs
    should not fail for one of them; without a single usable run it is a mistake. A run that is
    named twice counts once, and so does a copy of it in another folder. Results written before
    they had checksums are read, which is said.
    """
    runs: dict[tuple[str, str], Finished] = {}
    places = list(paths)
    for path in places:
        if not path.exists():
            raise UserError(f"there is no folder {path}.")
        for folder in _candidates(path):
            result, complaint = _read(folder)
            if complaint:
                skipped(folder, complaint)
            else:
                measured = json.dumps(result, sort_keys=True)  # with its times, like no other's
                runs.setdefault((folder.resolve().name, measured), Finished(folder, result))
    if not runs:
        named = ", ".join(str(path) for path in places)
        raise UserError(f"there is no finished run in {named}: run one with onpro run.")
    unchecked = sum("checksum" not in run.result for run in runs.values())
    if unchecked:
        LOG.warning("%d of %d results have no checksum: read unchecked.", unchecked, len(runs))
    return list(runs.values())


def _candidates(path: Path) -> Iterator[Path]:
    """The folder itself where it is a run's, else the folders in it."""
    try:
        inside = sorted(path.iterdir())
        if any(entry.name in ("result.json", "config.json") for entry in inside):
            yield path
        else:
            yield from (p for p in inside if p.is_dir() and not p.name.startswith("."))
    except OSError:  # a file, or a folder that may not be read
        yield path


def _read(folder: Path) -> tuple[Any, str | None]:
    """The result in a folder, and why it cannot be used where it cannot, as half a sentence."""
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
