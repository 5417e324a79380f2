"""Store finished runs in one file, a line each; see `onpro.runs.reading`."""

import json
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.runs.files import locked, save, writing_below
from onpro.runs.reading import PACKED, Finished, identity_of, read_runs
from onpro.runs.schema import checksum

Key = tuple[object, ...]


def pack(file: Path, paths: Iterable[Path], *, replace: bool = False) -> tuple[int, int]:
    """Add finished runs to a packed file, which is created if it does not exist.

    A run that the file already holds is not added again. Absolute paths in the command of a
    run, which say where it ran but not what, are shortened to their last part; the data folder in
    its configuration is left out.

    Args:
        file: The file; its name ends in `PACKED`.
        paths: See `read_runs`.
        replace: Whether another result of the same run takes the place of the one in the file.

    Returns:
        Number of runs added or replaced, and number of runs in the file.

    Raises:
        UserError: If the file has a line that is no run, or another result of a run and `replace`
            is False.
    """
    if file.suffix != PACKED:
        raise UserError(f"{file} must end in {PACKED}.")
    if not file.parent.is_dir():
        raise UserError(f"there is no folder {file.parent}.")
    new = [_portable(run) for run in read_runs(paths)]
    with writing_below(file.parent), locked(file):
        there = read_runs([file], skipped=_refuse) if file.exists() and file.stat().st_size else []
        stored = {_key(run): run for run in there}
        before = {key: _content(run) for key, run in stored.items()}
        different = [run for run in new if before.get(_key(run), _content(run)) != _content(run)]
        if different and not replace:
            raise UserError(
                f"{file} has another result of {different[0].folder.name}"
                f"{f' and {len(different) - 1} more' if len(different) > 1 else ''}: pack into "
                "another file, or let new results take the place of old ones with --replace."
            )
        stored |= {_key(run): run for run in new}
        changed = sum(before.get(_key(run)) != _content(run) for run in stored.values())
        lines = [_line(run) for run in sorted(stored.values(), key=_order)]
        save(file, "".join(lines).encode())
    return changed, len(lines)


def _refuse(place: Path, reason: str) -> None:
    raise UserError(f"{place} cannot be used, {reason}: repair or remove it, nothing is changed.")


def _key(run: Finished) -> Key:
    """Return what two results of the same run have in common."""
    computed = run.result.get("device"), run.result.get("engine")
    return (identity_of(run.config) or run.folder.name, *computed)


def _content(run: Finished) -> str:
    return str(run.result.get("checksum") or checksum(run.result))


def _order(run: Finished) -> tuple[object, ...]:
    """Return a key that sorts the runs of a file: seeds in order, new runs near similar ones."""
    result = run.result
    stem = run.folder.name.rpartition("-s")[0]
    recipe = result.get("recipe") or ""
    return (result["data"], result["memory"], stem, recipe, run.folder.name[-8:], result["seed"])


def _line(run: Finished) -> str:
    content = {"run": run.folder.name, "config": run.config, "result": run.result}
    return json.dumps(content, separators=(",", ":")) + "\n"


def _portable(run: Finished) -> Finished:
    """Return a run whose command and configuration have no absolute path but that of `folder:PATH`.

    That path is part of the run's identity.
    """
    config = _with_short_settings({name: _shortened(value) for name, value in run.config.items()})
    if "data_dir" in config:
        config["data_dir"] = None
    result = dict(run.result)
    if isinstance(result.get("config"), dict):
        result["config"] = _with_short_settings(result["config"])
    command = result.get("command")
    if isinstance(command, str):
        with suppress(ValueError):  # no command that a shell understands
            result["command"] = shlex.join(map(_shortened, shlex.split(command)))
    if "checksum" in result:
        result["checksum"] = checksum(result)
    return Finished(run.folder, result, config)


def _with_short_settings(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration whose settings, such as a file of weights, have no absolute path.

    Weights are known by their digest, so that the identity stays the same.
    """
    settings = config.get("settings")
    if not isinstance(settings, dict):
        return config
    return config | {"settings": {name: _shortened(value) for name, value in settings.items()}}


def _shortened(value: Any) -> Any:
    """Return the last part of an absolute path, also after the = of an option.

    >>> _shortened("/data/runs"), _shortened("--out=/data/runs"), _shortened("runs/a")
    ('runs', '--out=runs', 'runs/a')
    """
    if not isinstance(value, str):
        return value
    option, equals, path = value.rpartition("=")
    return f"{option}{equals}{Path(path).name}" if Path(path).is_absolute() else value
