"""Experiments of the user's own, from a file of grids.

Every `[[runs]]` of the file stands for all combinations of its values; `[common]` holds for those
that do not say otherwise.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

from onpro.data import find
from onpro.errors import UserError, unknown
from onpro.experiments.experiment import (
    MOST_SEEDS,
    PAPER_MEASURES,
    Cell,
    Experiment,
    Measure,
    Pairs,
)
from onpro.experiments.plan import Place, configurations
from onpro.experiments.tables import reported
from onpro.experiments.tomlfile import TomlFile, Where
from onpro.methods import method, recipes
from onpro.runs.config import RunConfig
from onpro.runs.method_file import resolve
from onpro.streams import Disjoint, StreamKind, find_kind, stream_kind, stream_kinds
from onpro.validation import accepted, described, fits

STREAM = (
    *("tasks", "batch_size", "class_order", "image_size", "limit_per_class"),
    *("hide_boundaries", "evaluations"),
)
"""Keys that vary the stream: fields of `RunConfig`, beside `stream` and its settings."""

KEYS = ("method", "data", "memory", "seeds", "recipe", "settings", "stream", *STREAM)

NO_RECIPE = "none"
"""Stands for the method itself in a list of recipes."""

DEFAULTS: dict[str, Any] = {
    "data": "digits",
    "memory": 100,
    "seeds": 1,
    "recipe": NO_RECIPE,
    "stream": Disjoint.name,
}


def read_sweep(path: Path) -> list[Cell]:
    """The cells that a file asks for: accuracy and forgetting of each of its experiments."""
    wanted: dict[Experiment, tuple[int, ...]] = {}
    for experiment in _experiments(TomlFile.read(path)):
        same = replace(experiment, seeds=())
        wanted[same] = tuple(dict.fromkeys((*wanted.get(same, ()), *experiment.seeds)))
    experiments = _titled([replace(same, seeds=seeds) for same, seeds in wanted.items()])
    return [
        Cell(experiment, measure, _reported(experiment, measure))
        for experiment in experiments
        for measure in PAPER_MEASURES
    ]


def _experiments(file: TomlFile) -> Iterator[Experiment]:
    """All combinations of all grids, without titles."""
    for name in file.values:
        if name not in ("common", "runs"):
            raise file.wrong(("", 0), name, str(unknown("table", name, ("common", "runs"))))
    common, grids = file.values.get("common", {}), file.values.get("runs", [])
    if not isinstance(common, dict):
        raise file.wrong(("", 0), "common", "common must be a table: write [common].")
    if not isinstance(grids, list) or not all(isinstance(grid, dict) for grid in grids):
        raise file.wrong(("", 0), "runs", "runs must be a list of tables: write [[runs]].")
    if not grids:
        raise UserError(f"{file.path} asks for no runs: write at least one [[runs]].")
    _check_keys(file, ("common", 0), common)
    for number, grid in enumerate(grids):
        where = ("runs", number)
        _check_keys(file, where, grid)
        settings = common.get("settings", {}) | grid.get("settings", {})
        whole = Grid(file, where, DEFAULTS | common | grid | {"settings": settings})
        whole.check_stream_settings(grid)
        yield from whole


def _check_keys(file: TomlFile, where: Where, values: Mapping[str, Any]) -> None:
    known = {*KEYS, *(key for kind in stream_kinds().values() for key in _settings_of(kind))}
    for key in values:
        if key not in known:
            raise file.wrong(where, key, str(unknown("key", key, known)))
    if not isinstance(values.get("settings", {}), dict):
        raise file.wrong(where, "settings", "settings must be a table, such as [runs.settings].")


@dataclass(frozen=True)
class Grid:
    """A `[[runs]]` with what it takes from `[common]`: an iterable of experiments."""

    file: TomlFile
    where: Where
    values: Mapping[str, Any]

    def __iter__(self) -> Iterator[Experiment]:
        if "method" not in self.values:
            raise self._wrong("", 'say which method is to be run, such as method = "er".')
        hints = get_type_hints(RunConfig)
        methods = [self._resolved(name) for name in self._axis("method", str)]
        names = methods, self._axis("data", str), self._axis("recipe", str)
        memories = self._axis("memory", int)
        streams = [
            kind + rest
            for kind in self._kinds()
            for rest in _combined({k: self._axis(k, hints[k]) for k in STREAM if k in self.values})
        ]
        for name, data, recipe in product(*names):
            self._check_names(name, data, recipe)
            for memory, settings, stream in product(memories, self._settings(name), streams):
                experiment = Experiment(
                    title="",
                    method=name,
                    data=data,
                    memory=memory,
                    seeds=self._seeds(),
                    recipe=None if recipe == NO_RECIPE else recipe,
                    settings=settings,
                    stream=stream,
                )
                problem = _problem(experiment)
                if problem:
                    raise self._wrong(*_culprit(experiment, problem))
                yield experiment

    def check_stream_settings(self, given: Iterable[str]) -> None:
        """Refuse settings of streams that the grid does not have."""
        names = self._axis("stream", str)
        for name in names:
            try:
                find_kind(name)
            except UserError as error:
                raise self._wrong("stream", str(error), name) from None
        known = {key for name in names for key in _settings_of(find_kind(name))}
        for key in given:
            if key not in KEYS and key not in known:
                have = [name for name, kind in stream_kinds().items() if key in _settings_of(kind)]
                what = f"{key} is a setting of the stream {' and of '.join(have)}"
                raise self._wrong(key, f'{what}: add stream = "{have[0]}".')

    def _kinds(self) -> Iterator[Pairs]:
        """The kinds of streams with all combinations of their settings; nothing for disjoint."""
        for name in self._axis("stream", str):
            hints = _settings_of(find_kind(name))
            axes = {key: self._axis(key, hints[key]) for key in hints if key in self.values}
            for settings in _combined(axes):
                try:
                    kind = stream_kind(name, **dict(settings))
                except UserError as error:
                    raise self._wrong(settings[0][0], str(error)) from None
                yield () if kind == Disjoint() else (("stream", kind),)

    def _resolved(self, name: str) -> str:
        try:
            return resolve(name)
        except UserError as error:
            raise self._wrong("method", str(error), name) from None

    def _check_names(self, name: str, data: str, recipe: str) -> None:
        for key, value, look_up in (("method", name, method), ("data", data, find)):
            try:
                look_up(value)
            except UserError as error:
                raise self._wrong(key, str(error), value) from None
        known = (NO_RECIPE, *recipes(name))
        if recipe not in known:
            raise self._wrong("recipe", str(unknown(f"recipe of {name}", recipe, known)), recipe)

    def _seeds(self) -> tuple[int, ...]:
        given = self.values["seeds"]
        if type(given) is int and given > MOST_SEEDS:
            raise self._wrong("seeds", f"seeds takes at most {MOST_SEEDS} runs, not {given}.")
        listed = list(range(given)) if type(given) is int else given
        if not isinstance(listed, list) or not listed or any(type(s) is not int for s in listed):
            what = "seeds takes a number of runs, at least 1, or a list of seeds"
            raise self._wrong("seeds", f"{what}, not {given!r}.")
        return tuple(listed)

    def _settings(self, name: str) -> list[Pairs]:
        hints = get_type_hints(method(name).settings_type)
        given = self.values["settings"]
        for key in given:
            if key not in hints:
                raise self._wrong(key, str(unknown(f"setting of {name}", key, hints)))
        return _combined({key: self._accepted(key, given[key], hints[key]) for key in given})

    def _axis(self, key: str, hint: Any) -> list[Any]:
        return self._accepted(key, self.values[key], hint)

    def _accepted(self, key: str, value: Any, hint: Any) -> list[Any]:
        """One value, or each of a list, as a field of that type holds it."""
        items = value if isinstance(value, list) and not fits(value, hint) else [value]
        for item in items or [value]:
            if not fits(item, hint):
                what = f"{key} takes {described(hint)}, or a list of such, not {item!r}."
                raise self._wrong(key, what, item)
        return [accepted(item, hint) for item in items]

    def _wrong(self, key: str, what: str, value: Any = None) -> UserError:
        return self.file.wrong(self.where, key, what, value)


def _settings_of(kind: type[StreamKind]) -> dict[str, Any]:
    """Return the types of a kind's settings by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _problem(experiment: Experiment) -> str:
    """Why an experiment cannot be run; empty where it can."""
    try:
        list(configurations(experiment, Place()))
    except UserError as error:
        return str(error)
    return ""


def _culprit(experiment: Experiment, problem: str) -> tuple[str, str, Any]:
    """The key and value without which an experiment has no problem, with the problem.

    No key where values do not go together.
    """
    without = {
        "memory": (experiment.memory, replace(experiment, memory=DEFAULTS["memory"])),
        "seeds": (None, replace(experiment, seeds=(0,))),
    }
    for field in ("settings", "stream"):
        pairs: Pairs = getattr(experiment, field)
        for pair in pairs:
            others: dict[str, Any] = {field: tuple(other for other in pairs if other != pair)}
            without[pair[0]] = pair[1], replace(experiment, **others)
    for key, (value, rest) in without.items():
        if not _problem(rest):
            return key, problem, value
    return "", problem, None


def _combined(axes: Mapping[str, Sequence[Any]]) -> list[Pairs]:
    """Names with one value each, in all combinations."""
    return [tuple(zip(axes, values, strict=True)) for values in product(*axes.values())]


def _titled(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Name each by its method and by whatever the others do not all have too."""
    everywhere = set.intersection(*(set(e.settings + e.stream) for e in experiments))
    return [replace(e, title=_title(e, everywhere)) for e in experiments]


def _title(experiment: Experiment, everywhere: set[tuple[str, Any]]) -> str:
    name = f"{experiment.method} ({experiment.recipe})" if experiment.recipe else experiment.method
    own = [pair for pair in experiment.settings + experiment.stream if pair not in everywhere]
    return ", ".join([name, *(f"{key}={value}" for key, value in own)])


def _reported(experiment: Experiment, measure: Measure) -> tuple[float, float] | None:
    """What the paper has for the experiment, if it is one of the paper's."""
    if experiment.settings or experiment.stream:
        return None
    where = experiment.data, experiment.memory
    return reported(experiment.method, experiment.recipe, *where, measure)
