"""Read a sweep from a TOML file.

Every `[[runs]]` is a grid: all combinations of its values. `[common]` holds defaults of all grids.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

from onpro.data import find
from onpro.errors import UserError, unknown
from onpro.experiments.experiment import MOST_SEEDS, Pairs, Setup
from onpro.experiments.grouping import STREAM
from onpro.experiments.plan import Place, configurations
from onpro.experiments.tomlfile import TomlFile, Where
from onpro.methods import method, methods, recipes
from onpro.methods.method_file import resolve
from onpro.runs.config import RunConfig
from onpro.streams import Disjoint, StreamKind, find_kind, stream_kind, stream_kinds
from onpro.validation import accepted, described, fits

KEYS = ("method", "data", "memory", "seeds", "recipe", "settings", "stream", *STREAM)

NO_RECIPE = "none"
"""The method itself, in a list of recipes."""

DEFAULTS: dict[str, Any] = {
    "data": "digits",
    "memory": 100,
    "seeds": 1,
    "recipe": NO_RECIPE,
    "stream": Disjoint.name,
}


def read_sweep(path: Path) -> list[Setup]:
    """Return the experiments that a file asks for; equal ones are merged, with all their seeds.

    A default that is written out makes no other experiment; a recipe has a row of its own.
    """
    wanted: dict[tuple[str, str | None], Setup] = {}
    for setup in _setups(TomlFile.read(path)):
        key = next(configurations(setup, Place())).experiment, setup.recipe
        first = wanted.setdefault(key, setup)
        seeds = tuple(dict.fromkeys((*first.seeds, *setup.seeds)))
        wanted[key] = replace(first, seeds=seeds)
    return list(wanted.values())


def _setups(file: TomlFile) -> Iterator[Setup]:
    """Yield all combinations of all grids."""
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
    named = values.get("stream", [])
    for name in named if isinstance(named, list) else [named]:
        if isinstance(name, str):
            try:
                find_kind(name)  # one in a file is registered by that, with its settings
            except UserError as error:
                raise file.wrong(where, "stream", str(error), name) from None
    known = {*KEYS, *(key for kind in stream_kinds().values() for key in _settings_of(kind))}
    for key in values:
        if key in known:
            continue
        settings = (fields(kind.settings_type) for kind in methods().values())
        if any(key == setting.name for own in settings for setting in own):
            said = f"{key} is a setting of methods: write settings.{key}."
            raise file.wrong(where, key, said)
        raise file.wrong(where, key, str(unknown("key", key, known)))
    if not isinstance(values.get("settings", {}), dict):
        raise file.wrong(where, "settings", "settings must be a table, such as [runs.settings].")


@dataclass(frozen=True)
class Grid:
    """A `[[runs]]` merged with `[common]`: an iterable of setups."""

    file: TomlFile
    where: Where
    values: Mapping[str, Any]

    def __iter__(self) -> Iterator[Setup]:
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
                setup = Setup(
                    method=name,
                    data=data,
                    memory=memory,
                    seeds=self._seeds(),
                    recipe=None if recipe == NO_RECIPE else recipe,
                    settings=settings,
                    stream=stream,
                )
                problem = _problem(setup)
                if problem:
                    raise self._wrong(*_culprit(setup, problem))
                yield setup

    def check_stream_settings(self, given: Iterable[str]) -> None:
        """Refuse settings of streams that the grid does not have."""
        names = self._axis("stream", str)
        known = {key for name in names for key in _settings_of(find_kind(name))}
        for key in given:
            if key not in KEYS and key not in known:
                have = [name for name, kind in stream_kinds().items() if key in _settings_of(kind)]
                what = f"{key} is a setting of the stream {' and of '.join(have)}"
                raise self._wrong(key, f'{what}: add stream = "{have[0]}".')

    def _kinds(self) -> Iterator[Pairs]:
        """Yield kinds of streams with all combinations of settings; nothing for disjoint."""
        for name in self._axis("stream", str):
            hints = _settings_of(find_kind(name))
            axes = {key: self._axis(key, hints[key]) for key in hints if key in self.values}
            for settings in _combined(axes):
                try:
                    kind = stream_kind(name, **dict(settings))
                except UserError as error:
                    key = settings[0][0] if settings else "stream"
                    raise self._wrong(key, str(error)) from None
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
        """Return a value, or each of a list, converted to the type of its field."""
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


def _problem(setup: Setup) -> str:
    """Return why a setup cannot be run; empty if it can."""
    try:
        list(configurations(setup, Place()))
    except UserError as error:
        return str(error)
    return ""


def _culprit(setup: Setup, problem: str) -> tuple[str, str, Any]:
    """Return the key and value that cause the problem, with the problem.

    The key is empty if no single value causes it.
    """
    without = {
        "memory": (setup.memory, replace(setup, memory=DEFAULTS["memory"])),
        "seeds": (None, replace(setup, seeds=(0,))),
    }
    for field in ("settings", "stream"):
        pairs: Pairs = getattr(setup, field)
        for pair in pairs:
            others: dict[str, Any] = {field: tuple(other for other in pairs if other != pair)}
            without[pair[0]] = pair[1], replace(setup, **others)
    for key, (value, rest) in without.items():
        if not _problem(rest):
            return key, problem, value
    return "", problem, None


def _combined(axes: Mapping[str, Sequence[Any]]) -> list[Pairs]:
    """Return all combinations of one value per name."""
    return [tuple(zip(axes, values, strict=True)) for values in product(*axes.values())]
