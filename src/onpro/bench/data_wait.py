"""How long training steps wait for images that are decoded while the run trains."""

import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

from onpro.bench.clock import wait
from onpro.data.imageset import ImageSet
from onpro.errors import UserError
from onpro.runs.config import RunConfig
from onpro.runs.runner import prepare
from onpro.streams import Batch
from onpro.training import Trainer

WARM_UP = 20
"""Steps with a full memory before the measurement: engines are at their speed, and workers have
started and decode ahead."""


def waiting(config: RunConfig, data: ImageSet, steps: int) -> dict[str, Any]:
    """Time steps on the stream of a data set, and on the same batches once they are on the device.

    The memory is full when the measurement begins. All steps are computed once before, because a
    GPU prepares kernels for each new shape the first time.

    Args:
        config: the run.
        data: its data, on its device.
        steps: number of steps to time.

    Returns:
        Milliseconds per step of both, those in which this process fetches a batch, and the share
        of the first that is spent waiting, in percent, ready for JSON. A GPU computes while batches
        are fetched, so that fetching need not mean waiting.
    """
    trainer = prepare(config, data)
    warm_up = -(-trainer.method.memory.capacity // config.batch_size) + WARM_UP
    if len(trainer.stream) < warm_up + steps:
        raise UserError(
            f"the stream of {config.data} has {len(trainer.stream)} steps, but {warm_up} to fill "
            f"the memory and {steps} to measure are needed; give fewer --steps or less --memory."
        )
    kept = list(islice(trainer.stream, warm_up + steps))
    _milliseconds(trainer, iter(kept), warm_up, steps)
    again = prepare(config, data)
    streamed, fetching = _milliseconds(again, iter(again.stream), warm_up, steps)
    alone, _ = _milliseconds(prepare(config, data), iter(kept), warm_up, steps)
    return {
        "method": config.method,
        "data": config.data,
        "memory": config.memory,
        "batch_size": config.batch_size,
        "image_size": data.image_shape[1],
        "precision": config.precision,
        "engine": trainer.stepper.engine,
        "steps": steps,
        "ms": streamed,
        "ms_without_waiting": alone,
        "ms_fetching": fetching,
        "waiting_percent": max(0.0, 100 * (1 - alone / streamed)),
        "images_per_second": 1000 * config.batch_size / streamed,
    }


def _milliseconds(
    trainer: Trainer, batches: Iterator[Batch], warm_up: int, steps: int
) -> tuple[float, float]:
    """Return the mean time of a step, and that of fetching its batch, after some steps."""
    device = trainer.method.context.device
    for _ in range(warm_up):
        trainer.stepper.step(next(batches))
    wait(device)
    fetching, began = 0.0, time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(batches)
        fetching += time.perf_counter() - asked
        trainer.stepper.step(batch)
    wait(device)
    return 1000 * (time.perf_counter() - began) / steps, 1000 * fetching / steps
