"""A self-contained HTML page of experiments: a table, charts, matrices, settings."""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Hashable, Sequence
from importlib.resources import files
from itertools import zip_longest
from typing import Any, Generic, NamedTuple, TypeVar

from onpro._version import __version__
from onpro.experiments import Summary, summarise
from onpro.experiments.experiment import MEASURES, Experiment
from onpro.experiments.grouping import short_digest
from onpro.experiments.matrices import accuracy_matrix, affordable_side, confusion_matrix, course
from onpro.experiments.statistics import accuracy_curve, forgetting_by_task
from onpro.reports.tables import seed_ranges
from onpro.runs import Finished
from onpro.text import visible

STYLES = ("page.css",)
SCRIPTS = ("dom.js", "tooltip.js", "lines.js", "scatter.js", "heatmap.js", "table.js", "page.js")

CONFUSION_CELLS = 1_000_000
ACCURACY_CELLS = 800_000
"""Largest number of matrix cells in a page, some 4 MB; larger matrices are folded."""

COURSE_CELLS = 400_000
"""Largest number of cells of what a page shows class by class over time."""

LONGEST_TEXT = 200
"""Longest setting or name in a page; the rest is cut."""

COURSES = {"byClass": "class_accuracy", "stored": "memory_content"}
"""What a page shows class by class over time, and the fields of results it comes from."""

RUN_COLUMNS = (
    *("folder", "seed", "accuracy, %", "forgetting, %", "forgetting (strict), %"),
    *("incremental, %", "training, s", "evaluation, s", "steps", "images seen"),
)

V = TypeVar("V", bound=Hashable)


class Picture(NamedTuple):
    """A picture of a page: a PNG file, what it shows in a few words, and in a sentence."""

    title: str
    about: str
    png: bytes


def page(
    experiments: Sequence[Experiment],
    skipped: Sequence[str] = (),
    pictures: Sequence[Picture] = (),
) -> str:
    """Return an HTML page that needs no network: data, style and script are in it.

    What run files say is data only: it is embedded once as JSON without a letter that HTML could
    take for markup, the script writes it as text, and the page's policy lets no other script run.

    Args:
        experiments: experiments with finished runs.
        skipped: what was passed over, one sentence each, for the page to name.
        pictures: figures of trained networks; without any the page has no such section.
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
        "data": harmless_json(content(experiments, skipped) | {"pictures": _sources(pictures)}),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], _asset("page.html"))


def harmless_json(value: Any) -> str:
    r"""Return JSON in ASCII without <, > and &, so that no string in it can end a script element.

    >>> harmless_json("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return re.sub("[<>&]", lambda letter: f"\\u{ord(letter[0]):04x}", text)


def _sources(pictures: Sequence[Picture]) -> list[dict[str, str]]:
    return [
        {
            "title": _cut(picture.title),
            "about": _cut(picture.about, 4 * LONGEST_TEXT),
            "src": f"data:image/png;base64,{base64.b64encode(picture.png).decode()}",
        }
        for picture in pictures
    ]


def content(experiments: Sequence[Experiment], skipped: Sequence[str] = ()) -> dict[str, Any]:
    """Return the data of the page, aggregated by experiment; the script rounds."""
    firsts = [one.runs[0].result for one in experiments]
    confusion_side = affordable_side((len(r["confusion"]) for r in firsts), CONFUSION_CELLS)
    accuracy_side = affordable_side((len(r["accuracy"]) for r in firsts), ACCURACY_CELLS)
    course_side = affordable_side((len(r["confusion"]) for r in firsts), COURSE_CELLS)
    labels = Pool[tuple[str, ...]]()
    settings, conditions = Pool[tuple[str, str]](), Pool[tuple[tuple[str, str], ...]]()
    rows = []
    for one in experiments:
        row = _numbers(one)
        row["matrix"] = vars(accuracy_matrix(one.runs, accuracy_side))
        confusion = confusion_matrix(one.runs, confusion_side)
        names = labels.index(tuple(_cut(name) for name in confusion.labels))
        row["confusion"] = vars(confusion) | {"labels": names}
        for name, field in COURSES.items():
            shown = course(one.runs, field, course_side, course_side)
            if shown:
                names = labels.index(tuple(_cut(label) for label in shown.labels))
                row[name] = vars(shown) | {"labels": names}
        row["settings"] = [settings.index(pair) for pair in _settings(one)]
        row["runs"] = [[*_run(run), conditions.index(tuple(_conditions(run)))] for run in one.runs]
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


class Pool(Generic[V]):
    """Distinct values, referred to by index."""

    def __init__(self) -> None:
        self._numbers: dict[V, int] = {}

    def index(self, value: V) -> int:
        """Return the index of a value; add it if it is new."""
        return self._numbers.setdefault(value, len(self._numbers))

    @property
    def values(self) -> list[V]:
        """All values, by index."""
        return list(self._numbers)


def _numbers(experiment: Experiment) -> dict[str, Any]:
    paper = experiment.paper
    return {
        "title": _cut(str(experiment)),
        "name": _cut(experiment.name),
        "method": _cut(experiment.method),
        "data": _cut(experiment.data),
        "memory": experiment.memory,
        "precision": _cut(experiment.runs[0].result["precision"]),
        "hash": _cut(short_digest(experiment.runs[0])),
        "seeds": _cut(seed_ranges(experiment)),
        "n": len(experiment.runs),
        **{name: _triple(experiment.summary(name)) for name in MEASURES},
        "paper": {name: paper.get(name) for name in ("accuracy", "forgetting")},
        "curve": _by_task(experiment, accuracy_curve),
        "forgotten": _by_task(experiment, forgetting_by_task),
    }


def _triple(summary: Summary | None) -> list[float | None]:
    """Return mean, standard deviation, half-width of the 95 % interval."""
    return [summary.mean, summary.deviation, summary.interval] if summary else [None, None, None]


def _by_task(
    experiment: Experiment, measure: Callable[[list[list[float]]], list[float]]
) -> list[list[float | None]]:
    """Return a measure of each task: means, and deviations and intervals of several runs."""
    measured = [measure(run.result["accuracy"]) for run in experiment.runs]
    columns = [
        summarise([value for value in column if value is not None])
        for column in zip_longest(*measured)
    ]
    means: list[float | None] = [column.mean for column in columns]
    if len(measured) == 1:
        return [means]
    return [means, [c.deviation for c in columns], [c.interval for c in columns]]


def _settings(experiment: Experiment) -> list[tuple[str, str]]:
    """Return settings by name; several values if runs differ."""
    values: dict[str, dict[str, None]] = {}
    for run in experiment.runs:
        for name, value in _texts(run.configuration).items():
            values.setdefault(name, {})[value] = None
    return [(_cut(name), _cut("; ".join(found))) for name, found in values.items()]


ELSEWHERE = {"method", "data", "memory", "seed", "recipe", "versions", "hardware", "precision"}
"""Fields of the configuration that the page shows elsewhere."""


def _texts(config: dict[str, Any]) -> dict[str, str]:
    """Return the settings of a run as text."""
    inner = config.get("settings")
    settings = inner if isinstance(inner, dict) else {}
    outer = {k: v for k, v in config.items() if k not in ELSEWHERE and k != "settings"}
    return {str(name): _text(value) for name, value in (settings | outer).items()}


def _conditions(run: Finished) -> list[tuple[str, str]]:
    """Return hardware and versions of a run."""
    result = run.result
    kinds = (result["hardware"], result["versions"])
    pairs = [(_cut(str(name)), _text(value)) for kind in kinds for name, value in kind.items()]
    return [("device", _text(result["device"])), *pairs]


def _run(run: Finished) -> list[Any]:
    """Return the numbers of a run, in the order of `RUN_COLUMNS`; counts as text."""
    result = run.result
    averages = ("accuracy", "forgetting", "forgetting_strict", "incremental_accuracy")
    measured = (
        *(result[f"average_{name}"] for name in averages),
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
    """Return the hash of a script or style for the content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
