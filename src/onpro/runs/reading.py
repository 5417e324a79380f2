"""Load finished runs from their folders, and from files that hold many.

Such a file is made by `onpro pack`. Each of its lines is a JSON object with the name of a run and
the content of its `config.json` and `result.json`.
"""

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.files import read_plain
from onpro.runs.config import RunConfig
from onpro.runs.config_file import parse_config
from onpro.runs.files import parse_json, read_json
from onpro.runs.folder import CONFIG, EVENTS, RESULT, RunFolder
from onpro.runs.schema import fault
from onpro.text import visible

LOG = logging.getLogger(__name__)

PACKED = ".jsonl"
"""Ending of files that hold many runs."""

Skipped = Callable[[Path, str], None]
"""Called with a skipped folder and the reason."""


@dataclass(frozen=True)
class Finished:
    """A finished run: its folder and the content of `result.json`."""

    folder: Path
    """For a run in a packed file, the path of the file followed by the name of the run."""
    result: dict[str, Any] = field(repr=False)
    packed_config: Any = field(default=None, repr=False)
    """The content of `config.json`, for a run in a packed file."""

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of `config.json`; empty if it cannot be read."""
        config = self.packed_config
        if config is None:
            with suppress(UserError):
                config = read_json(self.folder / CONFIG)
        return config if isinstance(config, dict) else {}

    @property
    def configuration(self) -> dict[str, Any]:
        """The configuration in the result, else the content of `config.json`, as older versions."""
        config = self.result.get("config")
        return config if isinstance(config, dict) else self.config

    def _repr_html_(self) -> str:
        """Return the accuracies as a table, for notebooks."""
        rows = self.result["accuracy"]
        titles = "".join(f"<th>task {task}</th>" for task in range(1, len(rows) + 1))
        body = "".join(
            f"<tr><th>after task {after}</th>"
            + "".join("<td></td>" if value is None else f"<td>{value:.1f}</td>" for value in row)
            + "</tr>"
            for after, row in enumerate(rows, 1)
        )
        what = escape(f"{self.result['method']} on {self.result['data']}: accuracy in %")
        average, forgetting = (self.result[f"average_{x}"] for x in ("accuracy", "forgetting"))
        return (
            f"<table><caption>{what}; average {average:.1f}, forgetting {forgetting:.1f}</caption>"
            f"<thead><tr><th></th>{titles}</tr></thead><tbody>{body}</tbody></table>"
        )


def warn(folder: Path, reason: str) -> None:
    """Report a skipped folder on standard error."""
    sys.stderr.write(f"onpro: skipped {visible(str(folder))}: {visible(reason)}.\n")


def read_runs(paths: Iterable[Path], *, skipped: Skipped = warn) -> list[Finished]:
    """Load the finished runs in the given folders and packed files.

    A folder or line without a usable result is skipped and reported. A run that is given twice, or
    as a copy in another place, counts once. Results of older versions without a checksum are loaded
    with a warning.

    Args:
        paths: Run folders, packed files, or folders that contain such; a packed file may be
            followed by a pattern of names, as in `results/cifar10.jsonl/er-*`.
        skipped: Called for each skipped folder or line.

    Raises:
        UserError: If a path does not exist, or there is no finished run at all.
    """
    runs: dict[str, Finished] = {}
    places = list(paths)
    for path in places:
        if not path.exists() and not _is_packed(path.parent):
            raise UserError(f"there is no folder or file {path}.")
        for place, run in _runs_at(path):
            if isinstance(run, str):
                skipped(place, run)
            else:
                # Unique, since a result includes times; copies of a run are one run.
                content = run.result.get("checksum") or json.dumps(run.result, sort_keys=True)
                runs.setdefault(content, run)
    if not runs:
        named = ", ".join(str(path) for path in places)
        raise UserError(f"there is no finished run in {named}: run one with onpro run.")
    unchecked = sum("checksum" not in run.result for run in runs.values())
    if unchecked:
        LOG.warning("%d of %d results have no checksum: read unchecked.", unchecked, len(runs))
    return list(runs.values())


def finished(
    config: RunConfig, out: Path, renamed: "Mapping[str, Path | Finished] | None" = None
) -> Finished | None:
    """Return the run of a configuration if it is finished below `out`; see `finished_in`.

    Args:
        config: the run.
        out: where run folders and packed files are.
        renamed: what `finished_by_identity(out)` returned, if that was called already.
    """
    place: Path | Finished = out / config.folder
    if not os.path.lexists(out / config.folder):
        places = finished_by_identity(out) if renamed is None else renamed
        place = places.get(config.identity) or places.get(config.folder, place)
    return place if isinstance(place, Finished) else finished_in(place, config)


def finished_by_identity(out: Path) -> "dict[str, Path | Finished]":
    """Return finished runs in a folder, and in the folders in it, by identity.

    Of a run with a folder that is the folder, of a run in a packed file the run itself. Runs of
    versions without identities are found by their names.
    """
    found: dict[str, Path | Finished] = {}
    for path in [*sorted(out.glob(f"*/{RESULT}")), *sorted(out.glob(f"*/*/{RESULT}"))]:
        with suppress(UserError):
            config = read_json(path.with_name(CONFIG))
            found.setdefault(identity_of(config) or path.parent.name, path.parent)
    for path in [*sorted(out.glob(f"*{PACKED}")), *sorted(out.glob(f"*/*{PACKED}"))]:
        if path.name != EVENTS:
            for _, run in _packed_runs(path):
                if isinstance(run, Finished):
                    found.setdefault(identity_of(run.config) or run.folder.name, run)
    return found


def identity_of(config: Any) -> str | None:
    """Return the identity of a run, given the content of its `config.json`; None if unknown.

    A run of an older version has the identity that it would have today; one whose method or stream
    is in a file, which is not imported for this, has the one it noted.
    """
    if not isinstance(config, dict):
        return None
    if not {"method_file", "stream_file"} & config.keys():
        with suppress(UserError):
            return parse_config(config).identity
    noted = config.get("identity")
    return noted if isinstance(noted, str) else None


def finished_in(folder: Path, config: RunConfig | None = None) -> Finished | None:
    """Return the run in a folder if it is finished; raise UserError if its result is damaged.

    Args:
        folder: where to look; nothing is changed there.
        config: what the run has to be, where that is known.
    """
    path = folder / RESULT
    try:
        if not os.path.lexists(path):
            return None
        result = read_json(path)
        complaint = fault(result)
    except (OSError, UserError):
        complaint = f"{path} cannot be read"
    if not complaint and config and not _is_of(folder, result, config):
        complaint = f"{path} is the result of another run"
    if complaint:
        raise UserError(f"{complaint}: remove {path} to resume the run, or {folder} to repeat it.")
    return Finished(folder, result)


def _is_of(folder: Path, result: Mapping[str, Any], config: RunConfig) -> bool:
    """Return whether a result is that of a run, also if an older version computed the identity."""
    identity = result.get("identity", config.identity)
    if identity == config.identity:
        return True
    try:
        noted = read_json(folder / CONFIG)
        return noted.get("identity") == identity and parse_config(noted).identity == config.identity
    except (AttributeError, UserError):
        return False


def _runs_at(path: Path) -> Iterator[tuple[Path, Finished | str]]:
    """Yield the place of each run, with the run or the reason why it cannot be used, as a clause.

    Empty folders, and folders with files of a run but no configuration, are yielded too.
    """
    if _is_packed(path.parent):
        yield from _packed_runs(path.parent, path.name)
        return
    if _is_packed(path):
        yield from _packed_runs(path)
        return
    waiting, met = [path], set()
    while waiting:
        folder = waiting.pop()
        try:
            inside = sorted(folder.iterdir())
            if any(entry.name in (RESULT, CONFIG) for entry in inside):
                yield folder, _read(folder)
                continue
            inside = [entry for entry in inside if not entry.name.startswith(".")]
            folders = [entry for entry in inside if entry.is_dir()]
            packed = [entry for entry in inside if _is_packed(entry) and _holds_runs(entry)]
        except OSError:  # a file, or a folder that may not be read
            yield folder, _read(folder)
            continue
        for file in packed:
            yield from _packed_runs(file)
        is_foreign = inside and not RunFolder(folder).own()
        if folder is not path and not folders and not packed and not is_foreign:
            yield folder, _read(folder)
        real = folder.resolve()
        if real not in met:  # a link may lead back
            met.add(real)
            waiting += reversed(folders)


def _read(folder: Path) -> Finished | str:
    """Return the run in a folder, or the reason why it cannot be used, as a clause."""
    path = folder / RESULT
    try:
        if path.is_file():
            result = read_json(path)
            return fault(result) or Finished(folder, result)
        unfinished = (folder / CONFIG).is_file()
    except UserError as error:
        return str(error).removesuffix(".")
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    return "the run is not finished" if unfinished else "it is not the folder of a run"


def _is_packed(path: Path) -> bool:
    return path.suffix == PACKED and path.is_file()


def _holds_runs(path: Path) -> bool:
    """Return whether the first line of a file is a run."""
    with path.open("rb") as file:
        return isinstance(_packed_run(path, file.readline()), Finished)


def _packed_runs(path: Path, pattern: str = "*") -> Iterator[tuple[Path, Finished | str]]:
    """Yield the runs of a packed file whose names match a pattern, and the faulty lines."""
    try:
        lines = read_plain(path).splitlines()
    except OSError as error:
        yield path, f"it cannot be read ({error.strerror})"
        return
    for number, line in enumerate(lines, 1):
        run = _packed_run(path, line)
        if isinstance(run, str):
            yield path, f"line {number}: {run}"
        elif fnmatchcase(run.folder.name, pattern):
            complaint = fault(run.result)
            yield run.folder, f"line {number}: {complaint}" if complaint else run


def _packed_run(path: Path, line: bytes) -> Finished | str:
    """Return the run that a line of a packed file holds, unchecked, or what is wrong with it."""
    try:
        content = parse_json(line)
    except (ValueError, RecursionError) as error:
        return f"it cannot be read ({error})"
    if isinstance(content, dict) and content.keys() == {"run", "config", "result"}:
        name, config, result = (content[key] for key in ("run", "config", "result"))
        if isinstance(name, str) and name not in ("", "..") and Path(name).name == name:
            return Finished(path / name, result, config)
    return "it holds no run"
