"""Describe experiments by their configuration, and find those of finished runs."""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any

from onpro.data import find
from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.experiments.tables import reported
from onpro.methods import settings_for
from onpro.nn import is_pretrained
from onpro.runs import Finished, RunConfig
from onpro.runs.config import SHORTCUT
from onpro.runs.config_file import parse_config
from onpro.streams import Disjoint, stream_kind

STREAM = (
    *("tasks", "batch_size", "class_order", "image_size", "limit_per_class"),
    "validation",
    *("hide_boundaries", "evaluations", *SHORTCUT),
)
"""Fields of `RunConfig` that describe the stream, besides the data set and the kind of stream."""


def described(config: Mapping[str, Any], **more: Any) -> Experiment:
    """Return the experiment of a configuration, with the paper's values if it is the paper's.

    Args:
        config: the content of `config.json`; of a damaged one at least method, data and memory.
        more: further fields of the experiment.
    """
    method, data, memory = (config[name] for name in ("method", "data", "memory"))
    recipe = config.get("recipe")
    by_hand = (*_settings_by_hand(config), *_stream_by_hand(config))
    known = "settings" in config and not by_hand
    paper = reported(method, recipe, data, memory) if known else {}
    return Experiment(method, data, memory, recipe, by_hand, paper=paper, **more)


def found(runs: Iterable[Finished]) -> list[Experiment]:
    """Return the experiments of finished runs by data set and memory, the most accurate first.

    Runs on different kinds of device, or with different engines, are different experiments. Of
    several runs of an experiment with one seed the first counts, because they are one sample.
    """
    groups: dict[Hashable, list[Finished]] = {}
    for run in runs:
        where = run.result.get("device"), run.result.get("engine")
        groups.setdefault((digest_of(run) or run.folder, *where), []).append(run)
    experiments = _named([_experiment(members) for members in groups.values()])
    return sorted(_told_apart(experiments), key=_rank)


def digest_of(run: Finished) -> str | None:
    """Return the digest of a run's experiment; None if it is unknown.

    It is that of the configuration, so that runs of before and after a setting was added to a
    method are one experiment; else, or if the method is in a file, the one noted in the result.
    """
    with suppress(UserError):
        return parse_config(run.configuration).experiment
    noted = run.result.get("experiment")
    return noted if isinstance(noted, str) else None


def short_digest(run: Finished) -> str:
    """Return eight digits of the experiment's digest, or the name of the run's folder."""
    return (digest_of(run) or "")[:8] or run.folder.name


def _experiment(members: Sequence[Finished]) -> Experiment:
    of_seeds = {run.result["seed"]: run for run in reversed(members)}  # a repetition is no sample
    runs = tuple(run for _, run in sorted(of_seeds.items()))
    result = runs[0].result
    told = {name: result.get(name) for name in ("method", "data", "memory")}
    told["recipe"] = _telling(result["method"], result["data"], result.get("recipe"))
    return described(runs[0].configuration | told, runs=runs)


def _telling(method: str, data: str, recipe: str | None) -> str | None:
    """Return a recipe, unless it has the values that the method has without it."""
    with suppress(UserError):  # of another version
        if settings_for(method, data, recipe) == settings_for(method, data):
            return None
    return recipe


def _rank(experiment: Experiment) -> tuple[str, int, float, str]:
    accuracy = experiment.summary("accuracy")
    mean = accuracy.mean if accuracy else 0.0
    return experiment.data, experiment.memory, -mean, experiment.name


def _named(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Name the settings in which experiments of a method differ that is not known here.

    The usual values of such a method, of a file or of another version, are unknown.
    """
    kinds = [(one.method, one.recipe, one.data) for one in experiments]
    unknown = [_settings_of_unknown(one) for one in experiments]
    values: defaultdict[Hashable, set[str]] = defaultdict(set)
    for kind, settings in zip(kinds, unknown, strict=True):
        for name, value in settings.items():
            values[kind, name].add(value)
    named = []
    for one, kind, settings in zip(experiments, kinds, unknown, strict=True):
        differing = [f"{n}={value}" for n, value in settings.items() if len(values[kind, n]) > 1]
        named.append(replace(one, by_hand=(*differing, *one.by_hand)))
    return named


def _settings_of_unknown(experiment: Experiment) -> dict[str, str]:
    """Return the settings of an experiment as text if its method is not known here."""
    given = experiment.runs[0].configuration.get("settings")
    try:
        settings_for(experiment.method, experiment.data, experiment.recipe)
    except UserError:
        return {str(n): str(v) for n, v in given.items()} if isinstance(given, dict) else {}
    return {}


def _told_apart(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Add details to experiments of the same name, data set and memory until they differ."""
    told = list(experiments)
    for detail in DETAILS:
        times = Counter(map(str, told))
        told = [
            replace(one, detail=", ".join(filter(None, [one.detail, detail(one.runs[0])])))
            if times[str(one)] > 1
            else one
            for one in told
        ]
    return told


def _precision(run: Finished) -> str:
    precision = str(run.result.get("precision", ""))
    return f"{precision}, deterministic" if run.configuration.get("deterministic") else precision


def _place(run: Finished) -> str:
    return " ".join(str(run.result.get(key, "unknown")) for key in ("engine", "device"))


DETAILS: tuple[Callable[[Finished], str], ...] = (_precision, _place, short_digest)


def _settings_by_hand(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings that are not the usual ones, and any pretrained encoder."""
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
        if name in usual
        and (_plain(usual[name]) != _plain(value) or _is_pretrained_encoder(name, value))
    )


def _is_pretrained_encoder(name: str, value: Any) -> bool:
    return name == "encoder" and isinstance(value, str) and is_pretrained(value)


def _stream_by_hand(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the stream options that are not the usual ones; a default written out is usual."""
    usual: dict[str, tuple[Any, ...]] = {
        field.name: (field.default,) for field in fields(RunConfig)
    }
    with suppress(UserError):  # a data set that is not here
        source = find(str(config["data"]))
        tasks = source.tasks_for(source.classes) if source.classes else None
        usual |= {"tasks": (None, tasks), "image_size": (None, source.image_size)}
    named = (f"stream={stream_name(config)}",) if "stream" in config else ()
    return named + tuple(
        f"{name}={config[name]}"
        for name in STREAM
        if name in config and config[name] not in usual[name]
    )


def by_hand_without(experiment: Experiment, setting: str) -> tuple[str, ...]:
    """Return what an experiment has by hand, but for a setting that is shown elsewhere.

    It is one of the method, of the stream, or of the kind of stream.
    """
    named = (part.partition("=")[0] for part in experiment.by_hand)
    parts = [
        f"stream={stream_name(experiment.runs[0].configuration, setting)}"
        if name == "stream"
        else part
        for name, part in zip(named, experiment.by_hand, strict=True)
        if name != setting
    ]
    return tuple(parts)


def stream_name(config: Mapping[str, Any], without: str = "") -> str:
    """Return the kind of stream of a configuration, with settings that are not the defaults.

    Args:
        config: the configuration.
        without: a setting of the kind that is shown elsewhere.
    """
    name, settings = _kind_of(config)
    settings.pop(without, None)
    try:
        return str(stream_kind(name, **settings))
    except UserError:  # of another version, or in a file of the user's own
        said = ", ".join(f"{name}={value}" for name, value in settings.items())
        return f"{name} ({said})" if said else name


def stream_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a configuration's kind of stream, defaults included."""
    name, settings = _kind_of(config)
    with suppress(UserError):
        return stream_kind(name, **settings).values()
    return settings


def _kind_of(config: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    values = config.get("stream")
    if not isinstance(values, dict):
        return Disjoint.name, {}
    settings = {str(name): value for name, value in values.items() if name != "kind"}
    return str(values.get("kind")), settings


def _plain(value: Any) -> Any:
    """Return a list for a tuple, as JSON does."""
    return list(value) if isinstance(value, tuple) else value
