"""Train a run and save it in its folder, in one go or in several."""

import logging
import shlex
import signal
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import torch

from onpro.augment import Normalise
from onpro.data import find, load
from onpro.data.imageset import ImageSet
from onpro.errors import UserError
from onpro.methods import Context, method
from onpro.nn import float32_by_default
from onpro.nn.pretrained import pretrained_part
from onpro.runs.config import RunConfig
from onpro.runs.events import EventLog, TensorBoardLog
from onpro.runs.files import Held, locked, read_json, write_json, writing_below
from onpro.runs.folder import CONFIG, RunFolder, final_folder, own_name, repetition_of
from onpro.runs.model import NetworkKeeper, save_model
from onpro.runs.probes import make_probe
from onpro.runs.reading import Finished, finished_in
from onpro.runs.result import collect, describe, hardware, versions
from onpro.runs.schema import checksum
from onpro.streams import ClassIncremental
from onpro.text import visible
from onpro.training import (
    CheckpointWriter,
    Listener,
    Stopped,
    Trainer,
    pick_device,
    pick_engine,
)
from onpro.training.checkpoint import CHECKPOINT_EVERY, step_of
from onpro.training.device import deterministic_mode, pick_precision
from onpro.training.engine import fuses

LOG = logging.getLogger(__name__)


class Interrupted(KeyboardInterrupt):
    """A run was ended by a signal; the message says how to resume it."""

    def __init__(self, message: str, number: int = signal.SIGINT) -> None:
        super().__init__(message)
        self.signal = number


def remove_leftovers(folder: Path) -> None:
    """Remove the checkpoints of a finished run that was killed before it could."""
    checkpoints = RunFolder(folder).checkpoints
    if folder.is_dir() and checkpoints.files():
        with suppress(Held), writing_below(folder.parent), locked(folder):
            checkpoints.remove()


def load_images(config: RunConfig) -> ImageSet:
    """Load the data of a run on its device; runs whose source is not `seeded` can share them."""
    data = load(
        config.data,
        data_dir=config.data_dir,
        image_size=config.image_size,
        seed=config.seed,
        limit_per_class=config.limit_per_class,
    )
    if config.validation:
        data = data.for_validation(config.validation)
    return data.to(pick_device(config.device))


class SharedImages:
    """Data shared by the runs of one process: those that see the same images have one copy."""

    def __init__(self) -> None:
        self._loaded: dict[Hashable, ImageSet] = {}

    def __call__(self, config: RunConfig) -> ImageSet:
        """Return the data of a run, see `load_images`."""
        if find(config.data).seeded:  # each seed has its own
            return load_images(config)
        kind = (
            *(config.data, config.data_dir, config.image_size),
            *(config.limit_per_class, config.validation),
        )
        if kind not in self._loaded:
            self._loaded[kind] = load_images(config)
        return self._loaded[kind]


def make_stream(
    config: RunConfig, data: ImageSet, device: torch.device | str = "cpu"
) -> ClassIncremental:
    """Return the stream of a run on its data."""
    tasks = config.tasks
    if tasks is None:
        tasks = find(config.data).tasks_for(len(data.classes))
    return ClassIncremental(
        data,
        tasks,
        kind=config.stream,
        batch_size=config.batch_size,
        seed=config.seed,
        class_order=config.class_order,
        hide_boundaries=config.hide_boundaries,
        evaluations=config.evaluations,
        shortcut=config.cue(),
        device=device,
    )


@float32_by_default()
def prepare(config: RunConfig, data: ImageSet | None = None) -> Trainer:
    """Build the trainer of a run, on data that are loaded unless given; write nothing."""
    kind = method(config.method)
    if not isinstance(config.settings, kind.settings_type):
        raise UserError(
            f"the method {config.method} takes {kind.settings_type.__name__}, not "
            f"{type(config.settings).__name__}: settings_for('{config.method}', …) gives them."
        )
    device = pick_device(config.device)
    engine = pick_engine(config.engine, device)
    data = data or load_images(config)
    stream = make_stream(config, data, device)
    precision = pick_precision(config.precision, device)
    context = Context(
        image_shape=data.image_shape,
        normalise=Normalise(data.mean, data.std),
        num_classes=stream.num_classes,
        memory=config.memory,
        seed=config.seed,
        device=device,
        precision=precision,
        fused=fuses(engine, device, precision),
    )
    learner = kind(config.settings, context)
    pretrained = pretrained_part(learner.network)
    if pretrained and pretrained.digest and config.encoder_sha256 not in (None, pretrained.digest):
        raise UserError(
            f"{config.settings.encoder_weights} has changed since the run began: undo that, or "
            "start another run."
        )
    trainer = Trainer(learner, stream, deterministic=config.deterministic, engine=engine)
    trainer.probe = make_probe(config, learner)
    return trainer


class How(TypedDict, total=False):
    """Options of training a run; see `running`."""

    listeners: Sequence[Listener]
    tensorboard: bool
    trainer: Trainer | None
    fresh: bool
    checkpoint_every: float
    stop: Callable[[], int | None]


def run(config: RunConfig, out: Path, **how: Unpack[How]) -> Finished:
    """Train one run and save it in its folder below `out`; see `running`."""
    return run_in(out / config.folder, config, **how)


@float32_by_default()
def run_in(folder: Path, config: RunConfig, **how: Unpack[How]) -> Finished:
    """Train one run and save it in a folder; see `running`."""
    with deterministic_mode(pick_device(config.device), config.deterministic):
        return last(running(folder, config, **how))


Running = Generator[None, int | None, Finished]
"""A run in progress: it yields after each step, and may be sent the number of runs side by side."""

End = TypeVar("End")
"""Result of a finished run."""


def last(running: Generator[None, None, End]) -> End:
    """Advance a run until it is finished."""
    while True:
        try:
            next(running)
        except StopIteration as end:
            value: End = end.value
            return value


def running(
    folder: Path,
    config: RunConfig,
    *,
    listeners: Sequence[Listener] = (),
    tensorboard: bool = False,
    trainer: Trainer | None = None,
    fresh: bool = False,
    checkpoint_every: float = CHECKPOINT_EVERY,
    stop: Callable[[], int | None] = lambda: None,
) -> Running:
    """Train one run and save it in a folder; resume it from its last checkpoint, if it has one.

    A run that does not end keeps its folder if it has a checkpoint to resume from; else it removes
    what it wrote. A finished run is returned unchanged unless `fresh` is true: then it is repeated
    in a folder of its own, with `.new` added to the name, whose files take the place of the
    finished run's only when it is finished itself.

    Args:
        folder: Folder of the run; a name that ends in `.new` resumes a repetition.
        config: what to run.
        listeners: Receive the events of the run.
        tensorboard: log for TensorBoard too.
        trainer: what `prepare(config)` gave, if that was called already.
        fresh: start over, whatever there is.
        checkpoint_every: seconds between two checkpoints; 0: one after each task instead.
        stop: asked after each step; the number of a signal ends the run with a checkpoint, and
            `Interrupted` is raised.
    """
    trainer = trainer or prepare(config)
    named = own_name(folder)
    folder = final_folder(named)
    first, repetition = RunFolder(folder), RunFolder(repetition_of(folder))
    with writing_below(folder.parent), locked(folder):
        first.require(config)
        if not fresh or not repetition.config.exists():
            _finish_move(repetition, first, config)
        if fresh:
            repetition.require(config)
            repetition.remove(folder=True)
        else:
            done = finished_in(folder, config)
            if done and not (named == repetition.path and named.exists()):
                first.checkpoints.remove()  # left by a run ended by force
                return done
        place = repetition if first.result.exists() else first
        place.require(config)
        if fresh:
            place.remove(keep={CONFIG})
        before, made = place.own(), not place.path.exists()
        saved = None if fresh else _restore(trainer, config, place)
        try:
            with writing_below(folder.parent), ExitStack() as logs:
                place.path.mkdir(exist_ok=True)
                if saved is None:
                    write_json(place.config, describe(config))
                log = EventLog(place.events, saved["events"] if saved else 0)
                trainer.listeners = [*listeners, logs.enter_context(closing(log))]
                if tensorboard or (saved and any(place.path.glob("events.out.tfevents*"))):
                    board = TensorBoardLog(place.path, trainer.stream.position)
                    trainer.listeners.append(logs.enter_context(closing(board)))
                if config.task_networks:
                    trainer.listeners.append(NetworkKeeper(place, trainer))
                identity = _identity(config, trainer)
                writer = CheckpointWriter(
                    place.checkpoints,
                    checkpoint_every,
                    stop=stop,
                    extra_state=lambda: identity | {"events": log.size()},
                )
                trainer.checkpointer = logs.enter_context(closing(writer))
                yield from trainer.steps()
                writer.close()
                if config.model != "none":
                    save_model(place.model, config, trainer)
                result = collect(config, trainer, read_json(place.config))
                result["checksum"] = checksum(result)
                write_json(place.result, result)
        except BaseException as error:
            if not place.checkpoints.files():
                place.remove(keep=before, folder=made)
            explained = _explained(error, trainer, place)
            if explained is error:
                raise
            raise explained from error
        place.checkpoints.remove()
        if place is repetition:
            repetition.move_to(first)
    return Finished(folder, result)


def _finish_move(repetition: RunFolder, first: RunFolder, config: RunConfig) -> None:
    """Finish the move of a repetition that was killed before or during it."""
    ended = finished_in(repetition.path, config)
    if ended:
        if "identity" not in ended.result or repetition.config.exists():
            repetition.require(config)
        repetition.move_to(first)
    elif repetition.path.exists() and not first.path.exists():
        repetition.require(config)
        repetition.path.rename(first.path)


def _identity(config: RunConfig, trainer: Trainer) -> dict[str, str]:
    """Return what a saved state must agree with to be resumed."""
    return {"run": config.folder, "device": trainer.method.context.device.type}


def _restore(trainer: Trainer, config: RunConfig, place: RunFolder) -> dict[str, Any] | None:
    """Restore the run's last checkpoint; return None if there is none.

    Logs that a run is resumed, or that it was begun but has no checkpoint.
    """
    folder = place.path
    saved = place.checkpoints.load()
    if saved is None:
        if place.config.exists():
            LOG.warning(
                "%s has no checkpoint: it starts from its first step.", visible(str(folder))
            )
        return None
    for name, value in _identity(config, trainer).items():
        if saved.get(name) != value:
            raise UserError(
                f"the checkpoint in {folder} is of the {name} {saved.get(name)}, not {value}: "
                "resume it there, or start over with onpro resume --fresh."
            )
    try:
        trainer.load_state_dict(saved["trainer"])
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(
            f"the checkpoint in {folder} does not fit this run, whose data or version of onpro has "
            f"changed ({error}): start over with onpro resume --fresh."
        ) from error
    LOG.warning(
        "%s resumes from step %d of %d (onpro resume --fresh starts over).",
        visible(str(folder)),
        trainer.stream.position,
        len(trainer.stream),
    )
    _compare_surroundings(folder, trainer.method.context.device)
    return saved


def _compare_surroundings(folder: Path, device: torch.device) -> None:
    """Warn if a run is resumed with other versions or on other hardware."""
    path = folder / "config.json"
    began = read_json(path) if path.is_file() else {}
    began = {kind: noted for kind, noted in began.items() if isinstance(noted, dict)}
    now = {"versions": versions(), "hardware": hardware(device)}
    changes = [
        f"{name} {began[kind][name]} → {value}"
        for kind, values in now.items()
        for name, value in values.items()
        if began.get(kind, {}).get(name, value) != value
    ]
    if changes:
        LOG.warning(
            "changed since the run began: %s; its result may differ from that of a run in one go.",
            ", ".join(changes),
        )


def _explained(error: BaseException, trainer: Trainer, place: RunFolder) -> BaseException:
    """Return the error that ended a run, with what is kept of the run."""
    folder, files = place.path, place.checkpoints.files()
    if isinstance(error, (KeyboardInterrupt, Stopped)):
        if not files:
            return Interrupted("interrupted; the unfinished run was not kept.")
        return Interrupted(
            f"interrupted; step {step_of(files[0])} of {len(trainer.stream)} is saved, resume "
            f"with: onpro resume {shlex.quote(str(folder))}",
            error.signal if isinstance(error, Stopped) else signal.SIGINT,
        )
    if files:
        kept = f"its checkpoint of step {step_of(files[0])} is kept in {folder}."
        if isinstance(error, UserError):
            return UserError(f"{str(error).rstrip('.')}; {kept}")
        error.add_note(kept)
    return error
