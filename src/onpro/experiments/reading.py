"""Finished runs, read back from their folders."""

from collections.abc import Iterable
from pathlib import Path

from onpro.errors import UserError
from onpro.experiments.files import read_json
from onpro.experiments.run import Finished


def read_runs(paths: Iterable[Path]) -> list[Finished]:
    """The finished runs in the given folders: run folders, or folders that hold some.

    A folder without a single finished run is a mistake; unfinished runs beside finished ones are
    passed over.
    """
    runs = []
    for path in paths:
        if not path.is_dir():
            raise UserError(f"there is no folder {path}.")
        found = [path] if (path / "result.json").is_file() else sorted(path.iterdir())
        results = [folder for folder in found if (folder / "result.json").is_file()]
        if not results:
            raise UserError(f"there is no finished run in {path}: run one with onpro run.")
        runs += [Finished(folder, read_json(folder / "result.json")) for folder in results]
    return runs
