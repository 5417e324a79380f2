"""Finished runs as a data frame."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onpro.errors import UserError
from onpro.runs.files import read_json
from onpro.runs.reading import read_runs
from onpro.runs.runner import Finished

if TYPE_CHECKING:
    import pandas as pd


def load_runs(*folders: str | Path) -> "pd.DataFrame":
    """Load the finished runs at any depth below some folders, one row each.

    Columns are the fields of `result.json` that hold one value, the path of the run as `run`, its
    settings as `settings.NAME` and its accuracies as `accuracy`, a list of lists.

    Raises:
        ImportError: If pandas is missing.
        UserError: If there is no finished run.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise ImportError("load_runs needs pandas: pip install 'onpro[pandas]'") from error
    return pd.DataFrame([_row(run) for run in read_runs(map(Path, folders))])


def _row(run: Finished) -> dict[str, Any]:
    single = {k: v for k, v in run.result.items() if not isinstance(v, (dict, list))}
    settings = {f"settings.{name}": value for name, value in _settings(run).items()}
    return {"run": str(run.folder), **single, "accuracy": run.result["accuracy"], **settings}


def _settings(run: Finished) -> Mapping[str, Any]:
    config = run.result.get("config")
    try:
        config = config or read_json(run.folder / "config.json")
    except UserError:
        return {}
    settings = config.get("settings") if isinstance(config, dict) else None
    return settings if isinstance(settings, dict) else {}
