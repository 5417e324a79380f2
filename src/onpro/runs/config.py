"""The configuration of a run: everything needed to repeat it."""

import hashlib
import json
import os
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from operator import index
from pathlib import Path
from typing import Any, Literal, SupportsIndex, get_type_hints

from onpro.data import find, located
from onpro.errors import UserError, counted
from onpro.files import expand_home
from onpro.methods import Settings, method
from onpro.methods.method_file import method_file_of
from onpro.methods.settings import PRETRAINED
from onpro.nn import Precision, is_pretrained
from onpro.nn.pretrained import file_digest
from onpro.streams import Disjoint, ShortcutSettings, StreamKind, stream_kind
from onpro.streams.class_incremental import require_possible
from onpro.training.device import DeviceName
from onpro.training.engine import Engine
from onpro.user_file import UserFile, file_of
from onpro.validation import accepted

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
    method_file: UserFile | None = field(init=False)
    """Where the method comes from, if it is a file of the user's own."""
    stream_file: UserFile | None = field(init=False)
    """Where the kind of stream comes from, if it is a file of the user's own."""

    def __post_init__(self) -> None:
        self.settings.check()
        self._set(
            settings=_as_typed(self.settings),
            method_file=method_file_of(self.method),
            stream_file=file_of(type(self.stream)),
            data=located(self.data),  # known by what it is, from anywhere
            **{name: accepted(getattr(self, name), float) for name in ("validation", *SHORTCUT)},
            **{name: self._whole(name) for name in WHOLE},
        )
        self._resolve_pretrained()
        if self.memory < 1:
            raise UserError(f"the memory must hold at least 1 image, not {self.memory}.")
        if self.memory < self.batch_size:
            raise UserError(
                f"a memory of {counted(self.memory, 'image')} is smaller than a batch of "
                f"{self.batch_size}: take a larger memory or smaller batches."
            )
        if not 0 <= self.seed < 2**63:
            raise UserError(f"the seed must be at least 0 and below 2^63, not {self.seed}.")
        if self.evaluations < 0:
            raise UserError(
                f"the number of evaluations must be at least 0, not {self.evaluations}."
            )
        if self.probe_every < 1:
            raise UserError(f"the probe measures every 1 or more steps, not {self.probe_every}.")
        if not 0 <= self.validation < 1:
            raise UserError(
                f"the validation share must be at least 0 and below 1, not {self.validation:g}."
            )
        if self.shortcut == 0:  # there is nothing to paint: the same run
            self._set(
                shortcut_size=ShortcutSettings.size, shortcut_strength=ShortcutSettings.strength
            )
        self._require_possible()
        if not self.stream.announced:  # there is nothing to hide: the same run
            self._set(hide_boundaries=False)

    def _require_possible(self) -> None:
        """Raise UserError for data and streams that cannot be, as far as known without data."""
        tasks, classes = self.tasks, None
        try:
            source = find(self.data)
        except UserError:  # a data set that is not here can still be reported on
            pass
        else:
            argument = self.data.partition(":")[2] or None
            source.check(argument, self.image_size, self.limit_per_class)
            classes = source.classes
            if classes is not None and tasks is None:
                tasks = source.tasks_for(classes)
        cued = self.cue() is not None
        require_possible(self.stream, tasks, classes, batch_size=self.batch_size, cued=cued)

    def _whole(self, name: str) -> int | None:
        """Return a whole number, also one of NumPy, as Python's."""
        value = getattr(self, name)
        try:
            return None if value is None else index(value)
        except TypeError:
            raise UserError(
                f"the {name.replace('_', ' ')} must be a whole number, not {value!r}."
            ) from None

    def _set(self, **values: Any) -> None:
        """Replace values while a configuration is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _resolve_pretrained(self) -> None:
        """Note the weights of a pretrained encoder; images of any size have the size it takes."""
        settings = self.settings
        if not is_pretrained(settings.encoder):
            self._set(encoder_sha256=None)
            return
        if settings.encoder_weights:
            path = os.path.realpath(expand_home(settings.encoder_weights))
            self._set(settings=replace(settings, encoder_weights=path))
            if self.encoder_sha256 is None:
                self._set(encoder_sha256=file_digest(path))
        with suppress(UserError):  # a data set that is not here can still be reported on
            if self.image_size is None and find(self.data).any_size:
                self._set(image_size=max(settings.pretrained.input_size))

    def cue(self) -> ShortcutSettings | None:
        """Return the shortcut of the stream; None without one."""
        if self.shortcut == 0:
            return None
        return ShortcutSettings(self.shortcut, self.shortcut_size, self.shortcut_strength)

    def what(self) -> dict[str, Any]:
        """Return what is computed as plain values, and not where."""
        apart = {"settings", "stream", "method_file", "stream_file", *PLACE, *OPTIONAL, *SHORTCUT}
        names = [field.name for field in fields(self) if field.name not in apart]
        what = {name: getattr(self, name) for name in names}
        what["settings"] = {
            name: value
            for name, value in asdict(self.settings).items()
            if name not in PRETRAINED or value != PRETRAINED[name]
        }
        # Named only where there is any, so that other runs keep the folders they always had.
        what |= {name: getattr(self, name) for name in OPTIONAL if getattr(self, name)}
        if self.stream != Disjoint():
            what["stream"] = {"kind": self.stream.name} | self.stream.values()
        if self.shortcut:
            what |= {name: getattr(self, name) for name in SHORTCUT}
        if self.method_file:
            what["method_sha256"] = self.method_file.digest
        if self.stream_file:
            what["stream_sha256"] = self.stream_file.digest
        return what

    @property
    def encoder_start(self) -> Literal["scratch", "pretrained"]:
        """How the encoder begins: with random or with pretrained weights."""
        return "pretrained" if is_pretrained(self.settings.encoder) else "scratch"

    @property
    def user_files(self) -> tuple[UserFile, ...]:
        """The user's own files that the run needs."""
        return tuple(file for file in (self.method_file, self.stream_file) if file)

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        """For another process, which has to import the user's files before their classes exist."""
        if not self.user_files:
            return super().__reduce_ex__(protocol)
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.init}
        plain = {"settings": asdict(self.settings), "stream": self.stream.values()}
        return _with_files, (self.user_files, self.stream.name, values | plain)

    @property
    def identity(self) -> str:
        """Digest of what is computed: equal for equal runs, wherever they lie.

        A value that the data set has by default counts as not given, and a recipe is only a name
        for settings.
        """
        return digest(self.what() | self.defaults_of_data())

    @property
    def experiment(self) -> str:
        """Digest of what is computed but for the seed: equal for the runs of one experiment."""
        return digest(self.what() | self.defaults_of_data(), without={"seed"})

    @property
    def hash(self) -> str:
        """First digits of `experiment`, for the name of the folder."""
        return self.experiment[:8]

    def defaults_of_data(self) -> dict[str, Any]:
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


def _with_files(files: tuple[UserFile, ...], kind: str, values: dict[str, Any]) -> RunConfig:
    """Return a configuration whose method or kind of stream is in a file."""
    for file in files:
        file.require()
    settings = method(values["method"]).settings_type(**values["settings"])
    stream = stream_kind(kind, **values["stream"])
    return RunConfig(**values | {"settings": settings, "stream": stream})


KEEPING = {"model", "task_networks", "probe", "probe_every"}
"""Fields that say what a run leaves behind; `config.json` has those that are not the defaults."""

PLACE = {"data_dir", "device", "engine", *KEEPING}
"""Fields that say where and how a run computes, and what it leaves behind, but not what."""

WHOLE = (
    *("memory", "seed", "evaluations", "tasks", "batch_size", "image_size"),
    *("limit_per_class", "probe_every"),
)
"""Fields that are whole numbers, or None."""

SHORTCUT = ("shortcut", "shortcut_size", "shortcut_strength")
"""Fields that say what cues are painted into training images."""

OPTIONAL = ("deterministic", "hide_boundaries", "evaluations", "validation", "encoder_sha256")
"""Fields that `config.json` has only where they differ from their defaults, which are false."""
