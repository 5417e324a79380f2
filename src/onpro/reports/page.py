"""One self-contained page of finished runs: a table, charts, matrices, settings."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Hashable, Sequence
from importlib.resources import files
from itertools import zip_longest
from statistics import fmean
from typing import Any, Generic, TypeVar

from onpro._version import __version__
from onpro.experiments import Summary, summarise
from onpro.experiments.naming import configuration
from onpro.experiments.statistics import curve
from onpro.reports.cells import FEWEST_RUNS
from onpro.reports.matrices import accuracy_matrix, affordable_side, confusion_matrix
from onpro.reports.outcome import Outcome, forgetting, outcomes
from onpro.runs import Finished
from onpro.text import visible

STYLES = ("page.css",)
SCRIPTS = ("dom.js", "tooltip.js", "lines.js", "scatter.js", "heatmap.js", "table.js", "page.js")

CONFUSION_CELLS = 1_000_000
ACCURACY_CELLS = 800_000
"""What a page may hold of each kind of matrix, some 4 MB, before they are folded."""

LONGEST_TEXT = 200
"""Settings and names are cut after so many letters: a page is not the place for a novel."""

RUN_COLUMNS = (
    *("folder", "seed", "accuracy, %", "forgetting, %", "forgetting (strict), %"),
    *("incremental, %", "training, s", "evaluation, s", "steps", "images seen"),
)

Value = TypeVar("Value", bound=Hashable)


def page(runs: Sequence[Finished], skipped: Sequence[str] = ()) -> str:
    """An HTML page that needs no network: data, style and script are in it.

    What run files say is data only: it is embedded once as JSON without a letter that HTML could
    take for markup, the script writes it as text, and the page's policy lets no other script run.

    Args:
        runs: finished runs.
        skipped: what was passed over, one sentence each, for the page to name.
    """
    style, script = _asset(*STYLES), _asset(*SCRIPTS)
    policy = (
        "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; "
        f"style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    )
    parts = {
        "policy": policy,
        "style": style,
        "script": script,
        "data": harmless_json(content(runs, skipped)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], _asset("page.html"))


def harmless_json(value: Any) -> str:
    r"""JSON in ASCII without <, > and &, so that no string in it can end a script element.

    >>> harmless_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda letter: f"\\u{ord(letter[0]):04x}", text)


def content(runs: Sequence[Finished], skipped: Sequence[str] = ()) -> dict[str, Any]:
    """What the page shows, as plain values: aggregated for each experiment; the script rounds."""
    found = outcomes(runs)
    confusion_side = affordable_side((len(o.result["confusion"]) for o in found), CONFUSION_CELLS)
    accuracy_side = affordable_side((len(o.result["accuracy"]) for o in found), ACCURACY_CELLS)
    labels = Pool[tuple[str, ...]]()
    settings, conditions = Pool[tuple[str, str]](), Pool[tuple[tuple[str, str], ...]]()
    rows = []
    for outcome in found:
        row = _numbers(outcome)
        row["matrix"] = vars(accuracy_matrix(outcome.runs, accuracy_side))
        confusion = confusion_matrix(outcome.runs, confusion_side)
        names = labels.index(tuple(_cut(name) for name in confusion.labels))
        row["confusion"] = vars(confusion) | {"labels": names}
        row["settings"] = [settings.index(pair) for pair in _settings(outcome)]
        row["runs"] = [
            [*_run(run), conditions.index(tuple(_conditions(run)))] for run in outcome.runs
        ]
        rows.append(row)
    return {
        "version": __version__,
        "experiments": rows,
        "labels": labels.values,
        "settings": settings.values,
        "conditions": conditions.values,
        "runColumns": RUN_COLUMNS,
        "skipped": [_cut(line, 4 * LONGEST_TEXT) for line in skipped],
    }


class Pool(Generic[Value]):
    """Values that many places share, kept once and named by their number."""

    def __init__(self) -> None:
        self._numbers: dict[Value, int] = {}

    def index(self, value: Value) -> int:
        """The number of a value, a new one where it is new."""
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[Value]:
        """All values, by number."""
        return list(self._numbers)


def _numbers(outcome: Outcome) -> dict[str, Any]:
    result = outcome.result
    return {
        "title": _cut(outcome.title),
        "name": _cut(outcome.name),
        "method": _cut(result["method"]),
        "data": _cut(result["data"]),
        "memory": result["memory"],
        "precision": _cut(result["precision"]),
        "hash": _cut(outcome.settings),
        "seeds": _cut(outcome.seeds),
        "n": outcome.accuracy.n,
        "accuracy": _triple(outcome.accuracy),
        "forgetting": _triple(outcome.forgetting),
        "incremental": _triple(outcome.incremental),
        "seconds": _triple(outcome.seconds),
        "paper": {
            "accuracy": outcome.paper_accuracy,
            "forgetting": outcome.paper_forgetting,
        },
        "curve": _by_task(outcome, curve),
        "forgotten": _by_task(outcome, forgetting),
    }


def _triple(summary: Summary) -> list[float | None]:
    """Return mean, standard deviation and half-width of the 95 % interval."""
    return [summary.mean, summary.deviation, _interval(summary)]


def _interval(summary: Summary) -> float | None:
    return summary.interval if summary.n >= FEWEST_RUNS else None


def _by_task(
    outcome: Outcome, measure: Callable[[list[list[float]]], list[float]]
) -> list[list[float | None]]:
    """A measure of each task: its means, and its deviations and intervals where there are any."""
    measured = [measure(run.result["accuracy"]) for run in outcome.runs]
    columns = [
        summarise([value for value in column if value is not None])
        for column in zip_longest(*measured)
    ]
    means: list[float | None] = [column.mean for column in columns]
    if len(measured) == 1:
        return [means]
    return [means, [c.deviation for c in columns], [_interval(c) for c in columns]]


def _settings(outcome: Outcome) -> list[tuple[str, str]]:
    """Names and values from the runs' `config.json`; several values where runs differ."""
    values: dict[str, dict[str, None]] = {}
    for run in outcome.runs:
        for name, value in _texts(configuration(run)).items():
            values.setdefault(name, {})[value] = None
    return [(_cut(name), _cut("; ".join(found))) for name, found in values.items()]


ELSEWHERE = {"method", "data", "memory", "seed", "recipe", "versions", "hardware", "precision"}
"""What the page says of a run in another place."""


def _texts(config: dict[str, Any]) -> dict[str, str]:
    """A run's settings as text."""
    inner = config.get("settings")
    settings = inner if isinstance(inner, dict) else {}
    outer = {k: v for k, v in config.items() if k not in ELSEWHERE and k != "settings"}
    return {str(name): _text(value) for name, value in (settings | outer).items()}


def _conditions(run: Finished) -> list[tuple[str, str]]:
    """On what a run was made."""
    result = run.result
    kinds = (result["hardware"], result["versions"])
    pairs = [(_cut(str(name)), _text(value)) for kind in kinds for name, value in kind.items()]
    return [("device", _text(result["device"])), *pairs]


def _run(run: Finished) -> list[Any]:
    """A run's own numbers, as `RUN_COLUMNS` names them; counts as text."""
    result = run.result
    values = curve(result["accuracy"])
    measured = (
        values[-1],
        *(result[f"average_{name}"] for name in ("forgetting", "forgetting_strict")),
        fmean(values),
        *(result[f"{name}_seconds"] for name in ("train", "eval")),
    )
    return [
        _cut(str(run.folder)),
        str(result["seed"]),
        *measured,
        *(f"{result[name]:,}" for name in ("steps", "images_seen")),
    ]


def _text(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value))


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    text = visible(text[: 4 * longest])  # of what is longer, no more is looked at
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _asset(*names: str) -> str:
    folder = files("onpro.reports") / "assets"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


def _digest(source: str) -> str:
    """What a page's policy calls a script or style that may be used."""
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
