"""One run from its configuration to its folder."""

import platform
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from onpro._version import __version__
from onpro.augment import Normalise
from onpro.data import find, load
from onpro.experiments.config import RunConfig
from onpro.experiments.events import EventLog, TensorBoardLog
from onpro.experiments.files import read_json, write_json, writing_below
from onpro.methods import Context, method
from onpro.streams import ClassIncremental
from onpro.training import Listener, Metrics, Trainer, pick_device
from onpro.training.device import AUTOCAST


@dataclass(frozen=True)
class Finished:
    """A run that is over: its folder and what `result.json` holds."""

    folder: Path
    result: dict[str, Any]


def finished(config: RunConfig, out: Path) -> Finished | None:
    """The run of this configuration if it is already there."""
    folder = out / config.folder
    path = folder / "result.json"
    return Finished(folder, read_json(path)) if path.is_file() else None


def prepare(config: RunConfig) -> Trainer:
    """Load the data and build the method; nothing is written."""
    device = pick_device(config.device)
    data = load(
        config.data, data_dir=config.data_dir, image_size=config.image_size, seed=config.seed
    )
    if config.limit_per_class is not None:
        data = data.limit_per_class(config.limit_per_class)
    tasks = config.tasks
    if tasks is None:
        tasks = find(config.data).tasks_for(len(data.classes))
    stream = ClassIncremental(
        data,
        tasks,
        batch_size=config.batch_size,
        seed=config.seed,
        class_order=config.class_order,
        device=device,
    )
    context = Context(
        image_shape=data.image_shape,
        normalise=Normalise(data.mean, data.std),
        num_classes=stream.num_classes,
        memory=config.memory,
        seed=config.seed,
        device=device,
        autocast=AUTOCAST[config.precision],
    )
    return Trainer(method(config.method)(config.settings, context), stream)


def run(
    config: RunConfig,
    out: Path,
    *,
    listeners: Sequence[Listener] = (),
    tensorboard: bool = False,
    trainer: Trainer | None = None,
) -> Finished:
    """Train one run and save it; a folder that cannot be finished is not left behind.

    A run that replaces a finished one takes its place only when it is finished itself.
    """
    trainer = trainer or prepare(config)
    folder = out / config.folder
    earlier = folder.with_name(folder.name + ".old")
    with writing_below(out), ExitStack() as undo:
        if (folder / "result.json").exists():
            shutil.rmtree(earlier, ignore_errors=True)
            folder.rename(earlier)
            undo.callback(earlier.rename, folder)
        folder.mkdir(parents=True, exist_ok=True)
        undo.callback(shutil.rmtree, folder, ignore_errors=True)
        write_json(folder / "config.json", describe(config))
        events = EventLog(folder / "events.jsonl")
        with ExitStack() as logs:
            logs.callback(events.close)
            trainer.listeners = [*listeners, events]
            if tensorboard:
                board = TensorBoardLog(folder)
                logs.callback(board.close)
                trainer.listeners.append(board)
            trainer.run()
        result = collect(config, trainer)
        write_json(folder / "result.json", result)
        undo.pop_all()
        shutil.rmtree(earlier, ignore_errors=True)
    return Finished(folder, result)


def describe(config: RunConfig) -> dict[str, Any]:
    """The configuration with versions and hardware: what `config.json` holds."""
    device = pick_device(config.device)
    where = {"data_dir": str(config.data_dir) if config.data_dir else None}
    return config.what() | where | {"versions": versions(), "hardware": hardware(device)}


def collect(config: RunConfig, trainer: Trainer) -> dict[str, Any]:
    """What a finished run has to say: the content of `result.json`."""
    tasks = trainer.stream.num_tasks
    accuracy = [[*row, *[None] * (tasks - len(row))] for row in trainer.accuracy]
    device = trainer.method.context.device
    return {
        "method": config.method,
        "data": config.data,
        "memory": config.memory,
        "seed": config.seed,
        "recipe": config.recipe,
        "accuracy": accuracy,
        **asdict(Metrics.of(accuracy)),
        "confusion": trainer.confusion.tolist(),
        "classes": list(trainer.stream.classes),
        "train_seconds": round(trainer.train_seconds, 3),
        "eval_seconds": round(trainer.eval_seconds, 3),
        "steps": trainer.stream.position,
        "images_seen": trainer.method.progress.images,
        "device": device.type,
        "hardware": hardware(device),
        "precision": config.precision,
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    """Versions of everything that can change a number."""
    return {
        "onpro": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """What the run computes on."""
    threads = torch.get_num_threads()
    if device.type == "cuda":
        return {"gpu": torch.cuda.get_device_name(device), "threads": threads}
    return {"cpu": platform.processor() or platform.machine(), "threads": threads}
