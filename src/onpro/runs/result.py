"""What a run leaves on record: its configuration, its surroundings, its result."""

import platform
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

import torch

from onpro._version import __version__
from onpro.runs.config import RunConfig
from onpro.training import Metrics, Trainer, pick_device


def describe(config: RunConfig) -> dict[str, Any]:
    """The configuration with versions and hardware: what `config.json` holds."""
    device = pick_device(config.device)
    data_dir = str(config.data_dir.expanduser().absolute()) if config.data_dir else None
    where = {"data_dir": data_dir, "device": config.device, "engine": config.engine}
    notes = {
        "versions": versions(),
        "hardware": hardware(device),
        "identity": config.identity,
    }
    if config.model != "none":
        where["model"] = config.model
    if config.method_file:
        where["method_file"] = str(config.method_file.path)
    return config.what() | where | notes


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
        "identity": config.identity,
        "accuracy": accuracy,
        **asdict(Metrics.of(accuracy)),
        "confusion": trainer.confusion.tolist(),
        "classes": list(trainer.stream.classes),
        "train_seconds": round(trainer.train_seconds, 3),
        "eval_seconds": round(trainer.eval_seconds, 3),
        "shared_by": trainer.shared_by,
        "steps": trainer.stream.position,
        "images_seen": trainer.method.progress.images,
        "device": device.type,
        "hardware": hardware(device),
        "precision": config.precision,
        "engine": trainer.stepper.engine,
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
