"""The configuration of a run: everything needed to repeat it."""

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, SupportsIndex, get_type_hints

from onpro._version import __version__
from onpro.data import find, located
from onpro.errors import UserError, counted
from onpro.methods import Settings, method
from onpro.methods.settings import PRETRAINED
from onpro.nn import Precision, is_pretrained
from onpro.nn.pretrained import file_digest
from onpro.runs.files import read_json
from onpro.runs.method_file import MethodFile, file_of
from onpro.streams import Disjoint, ShortcutSettings, StreamKind, stream_kind
from onpro.training.device import DeviceName
from onpro.training.engine import Engine
from onpro.validation import accepted, described, fits

KeptModel = Literal["none", "network", "memory"]
"""Nothing; the network and whatever else predictions need; the images of the memory too."""

ProbeName = Literal["none", "prototypes"]
"""What a run measures while it trains; see `onpro.runs.probes`."""


@dataclass(frozen=True)
class RunConfig:
    """One run: a method with its settings on a stream, and where it is computed."""

    method: str
    settings: Settings
    data: str = "digits"
    memory: int = 100
    seed: int = 0
    recipe: str | None = None
    """Name of the variation the settings come from, if any."""
    stream: StreamKind = field(default_factory=Disjoint)
    """Which images arrive when."""
    hide_boundaries: bool = False
    """Whether the method is not told when a task begins."""
    evaluations: int = 0
    """Number of evaluations at equal distances, beside those after each task."""
    shortcut: float = 0.0
    """Share of each class's training images with a cue of the class; 0 for none."""
    shortcut_size: float = ShortcutSettings.size
    shortcut_strength: float = ShortcutSettings.strength
    tasks: int | None = None
    batch_size: int = 10
    class_order: Literal["natural", "random"] = "natural"
    image_size: int | None = None
    limit_per_class: int | None = None
    validation: float = 0.0
    """Share of each class's training images that is held out and evaluated on, in the place of the
    test images; 0 for none."""
    precision: Precision = "fp32"
    deterministic: bool = False
    """Whether a GPU has to compute the same bits in every run; a CPU always does."""
    data_dir: Path | None = None
    device: DeviceName = "auto"
    engine: Literal["auto"] | Engine = "auto"
    model: KeptModel = "none"
    """What is kept of the trained model."""
    task_networks: bool = False
    """Whether the network after each task is kept too."""
    probe: ProbeName = "none"
    probe_every: int = 10
    """Number of steps between two measurements of the probe."""
    encoder_sha256: str | None = None
    """SHA-256 of the file with the weights of a pretrained encoder; computed unless given."""
    method_file: MethodFile | None = field(init=False)
    """Where the method comes from, if it is a file of the user's own."""

    def __post_init__(self) -> None:
        self.settings.check()
        object.__setattr__(self, "settings", _as_typed(self.settings))
        object.__setattr__(self, "method_file", file_of(self.method))
        object.__setattr__(self, "data", located(self.data))  # known by what it is, from anywhere
        self._resolve_pretrained()
        if self.memory < 1:
            raise UserError(f"the memory must hold at least 1 image, not {self.memory}.")
        if self.memory < self.batch_size:
            raise UserError(
                f"a memory of {counted(self.memory, 'image')} is smaller than a batch of "
                f"{self.batch_size}: "
                "take a larger memory or smaller batches."
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(f"the seed must be at least 0 and below 2^63, not {self.seed}.")
        if self.evaluations < 0:
            raise UserError(
                f"the number of evaluations must be at least 0, not {self.evaluations}."
            )
        if self.probe_every < 1:
            raise UserError(f"the probe measures every 1 or more steps, not {self.probe_every}.")
        object.__setattr__(self, "validation", accepted(self.validation, float))
        if not 0 <= self.validation < 1:
            raise UserError(
                f"the validation share must be at least 0 and below 1, not {self.validation:g}."
            )
        for name in SHORTCUT:
            object.__setattr__(self, name, accepted(getattr(self, name), float))
        if self.shortcut == 0:  # there is nothing to paint: the same run
            object.__setattr__(self, "shortcut_size", ShortcutSettings.size)
            object.__setattr__(self, "shortcut_strength", ShortcutSettings.strength)
        self.cue()
        if not self.stream.announced:  # there is nothing to hide: the same run
            object.__setattr__(self, "hide_boundaries", False)

    def _resolve_pretrained(self) -> None:
        """Note the weights of a pretrained encoder; images of any size have the size it takes."""
        settings = self.settings
        if not is_pretrained(settings.encoder):
            object.__setattr__(self, "encoder_sha256", None)
            return
        if settings.encoder_weights:
            path = os.path.realpath(Path(settings.encoder_weights).expanduser())
            object.__setattr__(self, "settings", replace(settings, encoder_weights=path))
            if self.encoder_sha256 is None:
                object.__setattr__(self, "encoder_sha256", file_digest(path))
        with suppress(UserError):  # a data set that is not here can still be reported on
            if self.image_size is None and find(self.data).any_size:
                object.__setattr__(self, "image_size", max(settings.pretrained.input_size))

    def cue(self) -> ShortcutSettings | None:
        """Return the shortcut of the stream; None without one."""
        if self.shortcut == 0:
            return None
        return ShortcutSettings(self.shortcut, self.shortcut_size, self.shortcut_strength)

    def what(self) -> dict[str, Any]:
        """Return what is computed as plain values, and not where."""
        what: dict[str, Any] = {
            "method": self.method,
            "data": self.data,
            "memory": self.memory,
            "seed": self.seed,
            "recipe": self.recipe,
            "tasks": self.tasks,
            "batch_size": self.batch_size,
            "class_order": self.class_order,
            "image_size": self.image_size,
            "limit_per_class": self.limit_per_class,
            "precision": self.precision,
            "settings": {
                name: value
                for name, value in asdict(self.settings).items()
                if name not in PRETRAINED or value != PRETRAINED[name]
            },
        }
        # Named only where there is any, so that other runs keep the folders they always had.
        if self.deterministic:
            what["deterministic"] = True
        if self.stream != Disjoint():
            what["stream"] = {"kind": self.stream.name} | self.stream.values()
        if self.hide_boundaries:
            what["hide_boundaries"] = True
        if self.evaluations:
            what["evaluations"] = self.evaluations
        if self.validation:
            what["validation"] = self.validation
        if self.shortcut:
            what |= {name: getattr(self, name) for name in SHORTCUT}
        if self.method_file:
            what["method_sha256"] = self.method_file.digest
        if self.encoder_sha256:
            what["encoder_sha256"] = self.encoder_sha256
        return what

    @property
    def encoder_start(self) -> Literal["scratch", "pretrained"]:
        """How the encoder begins: with random or with pretrained weights."""
        return "pretrained" if is_pretrained(self.settings.encoder) else "scratch"

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """For another process, which has to import the method's file before the settings exist."""
        if self.method_file is None:
            return super().__reduce_ex__(protocol)
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        return _with_file, (self.method_file, values | {"settings": asdict(self.settings)})

    @property
    def identity(self) -> str:
        """Digest of what is computed: equal for equal runs, wherever they lie.

        A value that the data set has by default counts as not given, and a recipe is only a name
        for settings.
        """
        return digest(self.what() | self._defaults_of_data())

    @property
    def experiment(self) -> str:
        """Digest of what is computed but for the seed: equal for the runs of one experiment."""
        return digest(self.what() | self._defaults_of_data(), without={"seed"})

    @property
    def hash(self) -> str:
        """First digits of `experiment`, for the name of the folder."""
        return self.experiment[:8]

    def _defaults_of_data(self) -> dict[str, Any]:
        """Number of tasks and size of images, None where they are those of the data set."""
        try:
            source = find(self.data)
        except UserError:  # a data set that is not here can still be reported on
            return {}
        tasks = source.tasks_for(source.classes) if source.classes else None
        return {
            "tasks": None if self.tasks == tasks else self.tasks,
            "image_size": None if self.image_size == source.image_size else self.image_size,
        }

    @property
    def folder(self) -> str:
        """Name of the run's folder, with the last part of a path to data and the kind of stream."""
        source, _, argument = self.data.partition(":")
        named = f"{source}_{Path(argument).name}"
        data = re.sub(r"[^A-Za-z0-9.]+", "_", named)[:80].strip("_")
        if self.stream != Disjoint():
            data += f"-{self.stream.name}"
        if self.shortcut:
            data += "-shortcut"
        if self.validation:
            data += "-validation"
        return f"{self.method}-{data}-m{self.memory}-s{self.seed}-{self.hash}"


def digest(what: Mapping[str, Any], without: Collection[str] = ()) -> str:
    """Return 32 digits of what is computed, without the fields named and the recipe's name."""
    content = {k: value for k, value in what.items() if k not in {"recipe", *without}}
    if "encoder_sha256" in content:  # weights are known by their content, not by their place
        content["settings"] = {**content["settings"], "encoder_weights": ""}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _as_typed(settings: Settings) -> Settings:
    """Convert the values to the types of their fields: 1 is 1.0 where a float is meant."""
    hints = get_type_hints(type(settings))
    typed = {name: accepted(value, hints[name]) for name, value in vars(settings).items()}
    return replace(settings, **typed)


def _with_file(file: MethodFile, values: dict[str, Any]) -> RunConfig:
    """Return a configuration whose method is in a file."""
    file.require()
    settings = method(values["method"]).settings_type(**values["settings"])
    return RunConfig(**values | {"settings": settings})


KEEPING = {"model", "task_networks", "probe", "probe_every"}
"""Fields that say what a run leaves behind; `config.json` has those that are not the defaults."""

PLACE = {"data_dir", "device", "engine", *KEEPING}
"""Fields that say where and how a run computes, and what it leaves behind, but not what."""

SHORTCUT = ("shortcut", "shortcut_size", "shortcut_strength")
"""Fields that say what cues are painted into training images."""

OPTIONAL = {
    *("deterministic", "stream", "hide_boundaries", "evaluations", "validation", "encoder_sha256"),
    *SHORTCUT,
}
"""Fields that `config.json` has only where they differ from their defaults."""

RETIRED: dict[str, dict[str, Any]] = {
    "er": {"distillation": 0.0, "rotations": 1},
    "aser": {"rotations": 1},
    "scr": {"rotations": 1},
    "dvc": {"rotations": 1},
}
"""Settings that methods had before wrappers took their place, with the values that change nothing;
runs with such values can still be read."""

NOTES = {"versions", "hardware", "identity", "experiment", "started"}
"""What `config.json` holds beside the configuration."""


def read_config(folder: Path) -> RunConfig:
    """Read the configuration of the run in a folder from its `config.json`."""
    path = folder / "config.json"
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.")
    if not path.exists():
        raise UserError(f"{folder} is not the folder of a run: it has no config.json.")
    values = read_json(path)
    try:
        return parse_config(values)
    except UserError as error:
        raise UserError(f"{path} cannot be used: {error}") from None


def parse_config(values: Any) -> RunConfig:
    """Return the configuration that the content of a `config.json` describes."""
    config, settings = _objects(values)
    _import_method(config.pop("method_file", None), config.pop("method_sha256", None))
    retired = RETIRED.get(config["method"], {})
    settings = {
        name: value
        for name, value in settings.items()
        if name not in retired or value != retired[name]
    }
    settings = PRETRAINED | settings
    settings_type = method(config["method"]).settings_type
    types = get_type_hints(RunConfig) | {"data_dir": str | None}
    differ = _difference(config, set(types) - {"method_file"}, optional=PLACE | OPTIONAL)
    differ += _difference(settings, {field.name for field in fields(settings_type)})
    if differ:
        raise UserError(f"{', '.join(differ)}{_writer(values)}.")
    for name, value in config.items():
        if name not in ("settings", "stream") and not fits(value, types[name]):
            raise UserError(f"{name} must be {described(types[name])}, not {value!r}.")
    data_dir = config.get("data_dir")
    read = RunConfig(
        **config
        | {
            "settings": settings_type(**{name: _tuples(v) for name, v in settings.items()}),
            "data_dir": Path(data_dir) if data_dir else None,
            "stream": _stream(config.get("stream")),
        }
    )
    # Older versions had other identities, of the values as they are in the file.
    written = digest({name: value for name, value in config.items() if name not in PLACE})
    if values.get("identity", read.identity) not in (read.identity, written):
        raise UserError(
            "it has been changed since the run began: undo that, or start another run with onpro "
            "run."
        )
    return read


def _import_method(path: Any, digest: Any) -> None:
    """Import the file that the run's method is in, if it is in one."""
    if path is None and digest is None:
        return
    if not (isinstance(path, str) and isinstance(digest, str)):
        raise UserError("method_file and method_sha256 must both be texts.")
    MethodFile(Path(path), digest).require()


def _objects(values: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the configuration without notes on versions and hardware, and the settings in it."""
    if not isinstance(values, dict):
        raise UserError("it holds no object.")
    config = {name: value for name, value in values.items() if name not in NOTES}
    if not isinstance(config.get("method"), str):
        raise UserError("it names no method.")
    settings = config.get("settings")
    if not isinstance(settings, dict):
        raise UserError("it has no settings of the method.")
    return config, settings


def _stream(values: Any) -> StreamKind:
    """Return the kind of stream that a configuration names; without one it is disjoint."""
    if values is None:
        return Disjoint()
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise UserError("stream must be an object that names a kind.")
    settings = {name: value for name, value in values.items() if name != "kind"}
    return stream_kind(values["kind"], **settings)


def _writer(values: dict[str, Any]) -> str:
    """Return a clause on the version that wrote it, if it is another one."""
    noted = values.get("versions")
    writer = noted.get("onpro") if isinstance(noted, dict) else None
    if writer in (None, __version__):
        return ""
    return f": it was written by onpro {writer} and this is {__version__}; go on with that version"


def _difference(
    values: Mapping[str, Any], known: set[str], optional: set[str] | None = None
) -> list[str]:
    """Return the names that are unknown or missing."""
    unknown, missing = values.keys() - known, known - values.keys() - (optional or set())
    return [f"'{n}' is unknown" for n in sorted(unknown)] + [
        f"'{n}' is missing" for n in sorted(missing)
    ]


def _tuples(value: Any) -> Any:
    """Return tuples for lists: JSON has no tuples, and settings have no lists."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
