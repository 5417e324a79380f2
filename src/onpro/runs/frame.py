"""Finished runs as a data frame."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onpro.runs.reading import Finished, read_runs

if TYPE_CHECKING:
    import pandas as pd


def load_runs(*folders: str | Path) -> "pd.DataFrame":
    """Load the finished runs in packed files and at any depth below folders, one row each.

    Columns are the fields of `result.json` that hold one value, the path of the run as `run`, its
    settings as `settings.NAME`, its kind of stream as `stream` and the settings of that as
    `stream.NAME`, and its accuracies as `accuracy`, a list of lists.

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
    config = run.configuration
    settings = {f"settings.{k}": v for k, v in _object(config, "settings").items()}
    stream = {f"stream.{k}": v for k, v in _object(config, "stream").items()}
    kind = stream.pop("stream.kind", "disjoint")
    whole = {"run": str(run.folder), **single, "accuracy": run.result["accuracy"]}
    return whole | settings | {"stream": kind} | stream


def _object(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}
