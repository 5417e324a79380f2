"""Measure a method with one engine, or with several in turn."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from onpro.bench.clock import Spread, Timed, alternately
from onpro.bench.forwards import work
from onpro.bench.images import made_up_images
from onpro.bench.learner import Learner
from onpro.errors import UserError
from onpro.runs.config import RunConfig
from onpro.runs.result import hardware, versions
from onpro.training import Engine, pick_device

PROFILED = 3
"""Most steps that are taken apart: the profiler is slow."""


@dataclass(frozen=True)
class Measure:
    """How much is measured, and against what."""

    steps: int = 20
    """Steps of a block, between two waits for the device."""
    repeats: int = 3
    """Blocks of each engine, one of each in turn."""
    peak_tflops: float | None = None
    """What the device can do, see `matrix_peak`."""

    def __post_init__(self) -> None:
        for name, value in (("steps", self.steps), ("repeats", self.repeats)):
            if value < 1:
                raise UserError(f"the number of {name} must be at least 1, not {value}.")


def bench(
    config: RunConfig, classes: int, engines: Sequence[Engine], measure: Measure
) -> list[dict[str, Any]]:
    """Measure a method in its first, second and last task, with each engine.

    Args:
        config: the run; its data set gives nothing but a name, tasks and image size must be given.
        classes: number of classes of the made-up images.
        engines: how steps are computed; several are measured in turn.
        measure: how much is measured.

    Returns:
        A result for each engine, ready for JSON.
    """
    if config.tasks is None or config.image_size is None:
        raise ValueError("a bench needs a number of tasks and an image size")
    device = pick_device(config.device)
    data = made_up_images(
        classes,
        config.tasks,
        batch_size=config.batch_size,
        image_size=config.image_size,
        device=device,
    )
    try:
        learners = [Learner(replace(config, engine=engine), data) for engine in engines]
        tasks = sorted({0, min(1, config.tasks - 1), config.tasks - 1})
        phases = [_phase(learners, task, measure) for task in tasks]
    except torch.OutOfMemoryError as error:
        raise UserError(
            f"{config.method} with a memory of {config.memory} images does not fit on the GPU: "
            "give smaller batches or images."
        ) from error
    finally:
        learners = []
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()  # what is measured next finds the GPU as this did
    what = config.what()
    what = {name: what[name] for name in RECORDED} | {"classes": classes}
    return [
        what | {"engine": engine, "phases": list(of_engine)}
        for engine, of_engine in zip(engines, zip(*phases, strict=True), strict=True)
    ]


RECORDED = (
    "method",
    "recipe",
    "data",
    "memory",
    "tasks",
    "batch_size",
    "image_size",
    "precision",
    "settings",
)
"""What a result tells of its configuration."""


def document(
    results: Sequence[Mapping[str, Any]], device: torch.device, measure: Measure
) -> dict[str, Any]:
    """Results with where they were measured and how: what a file holds."""
    return {
        "hardware": hardware(device),
        "versions": versions(),
        "device": device.type,
        **asdict(measure),
        "results": list(results),
    }


def _phase(learners: Sequence[Learner], task: int, measure: Measure) -> list[dict[str, Any]]:
    """Return the figures of a task for each learner."""
    for learner in learners:
        learner.enter(task)
    device = learners[0].method.context.device
    networks = [learner.network_alone() for learner in learners]
    steps = [Timed(learner.step, learner.here) for learner in learners]
    times = alternately(
        [*steps, *networks], steps=measure.steps, repeats=measure.repeats, device=device
    )
    of_steps, of_networks = times[: len(learners)], times[len(learners) :]
    return [
        _figures(learner, task, step, network, measure, alone=len(learners) == 1)
        for learner, step, network in zip(learners, of_steps, of_networks, strict=True)
    ]


def _figures(
    learner: Learner, task: int, step: Spread, network: Spread, measure: Measure, *, alone: bool
) -> dict[str, Any]:
    """Return the figures of a learner in a task."""
    method, forwards, footprint = learner.method, learner.forwards, learner.footprint
    images = sum(passed.images for passed in forwards)
    flops = work(forwards, learner.flops_of_an_image)
    tflops = flops / step.median / 1e9
    network_ms = network.median if forwards else 0.0
    on_gpu = method.context.device.type == "cuda"
    return {
        "task": task + 1,
        "classes_seen": len(method.progress.seen),
        "fused": method.context.fused,
        "ms": step.median,
        "ms_low": step.low,
        "ms_high": step.high,
        "images": images,
        "images_per_second": 1000 * images / step.median,
        "forwards": [list(passed) for passed in forwards],
        "tflops": tflops,
        "share_of_peak": tflops / measure.peak_tflops if measure.peak_tflops else None,
        "network_ms": network_ms,
        "outside_network": 1 - network_ms / step.median,
        "memory_allocated": footprint.allocated if on_gpu else None,
        "memory_reserved": footprint.reserved if on_gpu and alone else None,
        "breakdown": learner.breakdown(min(measure.steps, PROFILED)),
    }
