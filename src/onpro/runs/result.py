"""The record of a run: its configuration, its surroundings, its result."""

import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, fields
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from onpro._version import __version__
from onpro.errors import counted
from onpro.files import expand_home
from onpro.nn.pretrained import pretrained_part
from onpro.runs.config import KEEPING, RunConfig
from onpro.training import CueMetrics, Metrics, Trainer, anytime_accuracy, pick_device
from onpro.training.evaluation import CueRates

SCHEMA = 3
"""Version of what `result.json` holds; the first had none."""

COMMAND = "ONPRO_COMMAND"
"""Environment variable with the command line, which the processes it starts inherit."""


def describe(config: RunConfig) -> dict[str, Any]:
    """Return the configuration with versions, hardware and date: the content of `config.json`."""
    device = pick_device(config.device)
    data_dir = str(expand_home(config.data_dir).absolute()) if config.data_dir else None
    where = {"data_dir": data_dir, "device": config.device, "engine": config.engine}
    kept = {f.name: getattr(config, f.name) for f in fields(config) if f.name in KEEPING}
    defaults = {f.name: f.default for f in fields(config)}
    where |= {name: value for name, value in kept.items() if value != defaults[name]}
    notes = {
        "versions": versions(),
        "hardware": hardware(device),
        "identity": config.identity,
        "experiment": config.experiment,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    for name in ("method_file", "stream_file"):
        if file := getattr(config, name):
            where[name] = str(file.path)
    return config.what() | where | notes


def collect(
    config: RunConfig, trainer: Trainer, described: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the content of `result.json`.

    Args:
        config: the run.
        trainer: its trainer, after training.
        described: the content of its `config.json`.
    """
    tasks = trainer.stream.num_tasks
    accuracy = [[*row, *[None] * (tasks - len(row))] for row in trainer.accuracy]
    device = trainer.method.context.device
    return {
        "schema": SCHEMA,
        "method": config.method,
        "data": config.data,
        "memory": config.memory,
        "seed": config.seed,
        "recipe": config.recipe,
        "identity": config.identity,
        "experiment": config.experiment,
        **_encoder_start(config, trainer),
        "accuracy": accuracy,
        **asdict(Metrics.of(accuracy)),
        **_cues(trainer),
        "anytime_accuracy": anytime_accuracy(trainer.curve),
        "last_accuracy": trainer.curve[-1].accuracy,
        "curve": [point._asdict() for point in trainer.curve],
        "confusion": trainer.confusion.tolist(),
        "class_accuracy": trainer.class_accuracy,
        "memory_content": trainer.memory_content,
        **({config.probe: trainer.probe.state_dict()} if trainer.probe else {}),
        "classes": list(trainer.stream.classes),
        "train_seconds": round(trainer.train_seconds, 3),
        "eval_seconds": round(trainer.eval_seconds, 3),
        "shared_by": trainer.shared_by,
        "gpu_processes": gpu_processes(device),
        "steps": trainer.stream.position,
        "images_seen": trainer.method.progress.images,
        "device": device.type,
        "hardware": hardware(device),
        "precision": config.precision,
        "engine": trainer.stepper.engine,
        "versions": versions(),
        "config": config.what(),
        "command": os.environ.get(COMMAND),
        "commit": _commit(),
        "started": (described or {}).get("started"),
    }


def _encoder_start(config: RunConfig, trainer: Trainer) -> dict[str, Any]:
    """Return how the encoder began, and the SHA-256 of pretrained weights."""
    pretrained = pretrained_part(trainer.method.network)
    digest = {"encoder_sha256": pretrained.digest} if pretrained else {}
    return {"encoder_start": config.encoder_start, **digest}


def _cues(trainer: Trainer) -> dict[str, Any]:
    """Return the metrics of cues, and their rates on each task after each task.

    Nothing for a stream without a shortcut.
    """
    rows = trainer.cue_rates
    if not rows:
        return {}
    matrices = {
        name: [
            [getattr(rates, name) for rates in row] + [None] * (len(rows) - len(row))
            for row in rows
        ]
        for name in CueRates._fields
    }
    return {**asdict(CueMetrics.of(trainer.accuracy, rows)), "cues": matrices}


def versions() -> dict[str, str]:
    """Return the versions of everything that can change a result."""
    return {
        "onpro": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
    }


@cache
def _commit() -> str | None:
    """Return the commit of the package where it is a checkout, with + if there are changes."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"]
    with suppress(OSError, subprocess.SubprocessError):
        options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 5}
        tracked = subprocess.run(
            [*command[:3], "ls-files", "--error-unmatch", __file__], check=False, **options
        )
        if tracked.returncode == 0:
            return subprocess.run(command, check=True, **options).stdout.strip() or None
    return None


def hardware(device: torch.device) -> dict[str, Any]:
    """Return the hardware a run computes on."""
    threads = torch.get_num_threads()
    cpu = {"cpu": _cpu(), "threads": threads}
    if device.type != "cuda":
        return cpu
    return {
        "gpu": torch.cuda.get_device_name(device),
        **cpu,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "driver": _driver(),
    }


def is_timed(result: Mapping[str, Any]) -> bool:
    """Return whether the time of a run is its own.

    Older versions did not record what a run shared its device with; the time of a run beside other
    processes on a GPU contains theirs.
    """
    return "shared_by" in result and (result.get("gpu_processes") or 1) == 1


def gpu_processes(device: torch.device) -> int | None:
    """Return how many processes use a GPU now, this one included; None if that is unknown."""
    if device.type != "cuda":
        return None
    gpu = f"--id=GPU-{torch.cuda.get_device_properties(device).uuid}"
    query = ["nvidia-smi", gpu, "--query-compute-apps=pid", "--format=csv,noheader"]
    with suppress(OSError, subprocess.SubprocessError):
        answer = subprocess.run(query, capture_output=True, check=True, timeout=30)
        return len(answer.stdout.splitlines()) or None
    return None


@cache
def _cpu() -> str:
    """Return the model of the CPU, or its architecture where that is all there is."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@cache
def _driver() -> str | None:
    """Return the version of the NVIDIA driver."""
    with suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    return None


def machine(hardware: Mapping[str, Any]) -> str:
    """Return the name of the GPU, or that it was the CPU with its number of threads.

    >>> machine({"cpu": "x86_64", "threads": 1})
    'CPU, 1 thread'
    """
    if hardware.get("gpu"):
        return str(hardware["gpu"])
    threads = hardware.get("threads", "?")
    return f"CPU, {counted(threads, 'thread')}"
