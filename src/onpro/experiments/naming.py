"""What people call a run: its method, its recipe, and what was given by hand."""

from dataclasses import asdict, fields
from typing import Any

from onpro.errors import UserError
from onpro.experiments.sweep import STREAM
from onpro.methods import settings_for
from onpro.runs.config import RunConfig
from onpro.runs.files import read_json
from onpro.runs.runner import Finished
from onpro.streams import Disjoint, stream_kind


def name_of(run: Finished) -> str:
    """The method, its variation where it is one, and settings given by hand, in one line."""
    recipe = run.result.get("recipe")
    name = f"{run.result['method']} ({recipe})" if recipe else str(run.result["method"])
    return " ".join(", ".join([name, *given_by_hand(run)]).split())


def given_by_hand(run: Finished) -> tuple[str, ...]:
    """What neither the data set nor a recipe gave, of settings and stream, such as epochs=5."""
    config = configuration(run)
    return (*_settings_by_hand(config), *_stream_by_hand(config))


def configuration(run: Finished) -> dict[str, Any]:
    """Return what a run computes, from its result or, if that is of an older version, its folder.

    It is empty where neither can be read.
    """
    config = run.result.get("config")
    if not isinstance(config, dict):
        try:
            config = read_json(run.folder / "config.json")
        except UserError:
            return {}
    return config if isinstance(config, dict) else {}


def _settings_by_hand(config: dict[str, Any]) -> tuple[str, ...]:
    method, data, recipe = (config.get(name) for name in ("method", "data", "recipe"))
    given = config.get("settings")
    if not (isinstance(method, str) and isinstance(data, str) and isinstance(given, dict)):
        return ()  # damaged
    try:
        usual = asdict(settings_for(method, data, recipe if isinstance(recipe, str) else None))
    except UserError:  # of another version
        return ()
    return tuple(
        f"{name}={value}"
        for name, value in given.items()
        if name in usual and _as_json(usual[name]) != value
    )


def _stream_by_hand(config: dict[str, Any]) -> tuple[str, ...]:
    usual = {field.name: field.default for field in fields(RunConfig)}
    named = (f"stream={_kind(config)}",) if "stream" in config else ()
    return named + tuple(
        f"{name}={config[name]}" for name in STREAM if config.get(name, usual[name]) != usual[name]
    )


def stream_name(run: Finished) -> str:
    """Return the kind of stream of a run, with settings that differ from their defaults."""
    return _kind(configuration(run))


def _kind(config: dict[str, Any]) -> str:
    values = config.get("stream")
    if not isinstance(values, dict):
        return Disjoint.name
    settings = {str(name): value for name, value in values.items() if name != "kind"}
    try:
        return str(stream_kind(str(values.get("kind")), **settings))
    except UserError:  # of another version
        return f"{values.get('kind')} {settings}"


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
