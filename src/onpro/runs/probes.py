"""Probes, which measure a method while it trains without any effect on the training."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from onpro.errors import UserError
from onpro.methods.base import EVAL_BATCH
from onpro.methods.registry import AnyMethod
from onpro.randomness import derive_seed
from onpro.runs.config import RunConfig

REPLAY_BATCH = 64
"""Size of the replay batch for methods without one."""

COLUMNS = ("step", "task", "old", "new")


class PrototypeProbe:
    """Measures how similar online prototypes are to global ones (Fig. 5 of the paper).

    The global prototype of a class is the mean projection, of length 1, of all its images in the
    memory; its online prototype is that of its images in a replay batch. The similarity is their
    cosine, averaged over the old classes and over those of the current task in the replay batch.

    The probe samples a replay batch of its own, uniformly from the memory, so that it neither reads
    the method's random numbers nor depends on how the method replays. Images are projected as they
    are by the current network in eval mode, which leaves its batch norm as it is. Methods without a
    projection are measured by their features.

    Args:
        every: Number of steps between two measurements.
        seed: The run's seed. A replay batch depends on it and on the step alone, so that a resumed
            run measures the same.
        replay_batch: Number of images of a replay batch.
        space: What is measured, "projection" or "features".
    """

    def __init__(self, every: int, seed: int, replay_batch: int, space: str) -> None:
        self._every = every
        self._seed = seed
        self._replay_batch = replay_batch
        self._space = space
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}

    def is_due(self, step: int) -> bool:
        """Return whether to measure after a step."""
        return step % self._every == 0

    def measure(self, method: AnyMethod, step: int, task: int) -> None:
        """Measure the method after a step."""
        labels = method.memory.labels.cpu()
        generator = torch.Generator().manual_seed(derive_seed(self._seed, f"probe at step {step}"))
        replayed = torch.randperm(len(labels), generator=generator)[: self._replay_batch]
        old, new = [], []
        if len(labels):
            z = _projections(method)
            present = labels[replayed].unique().tolist()
            online = _means(z[replayed], labels[replayed], present)
            cosines = cosine_similarity(online, _means(z, labels, present)).tolist()
            before = method.progress.seen_before_task
            old = [cosine for k, cosine in zip(present, cosines, strict=True) if k in before]
            new = [cosine for k, cosine in zip(present, cosines, strict=True) if k not in before]
        for name, value in zip(COLUMNS, (step, task, _mean(old), _mean(new)), strict=True):
            self._columns[name].append(value)

    def state_dict(self) -> dict[str, Any]:
        """Return what was measured: its step, its task, and the similarities, a list of each."""
        known = {"every": self._every, "replay_batch": self._replay_batch, "space": self._space}
        return known | {name: list(values) for name, values in self._columns.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what was measured before."""
        self._columns = {name: list(state[name]) for name in COLUMNS}


def make_probe(config: RunConfig, method: AnyMethod) -> PrototypeProbe | None:
    """Return the probe of a run, None if it has none; raise UserError if it cannot measure."""
    if config.probe == "none":
        return None
    if not method.memory.capacity:
        raise UserError(
            f"{config.method} keeps no images, from which prototypes are computed: leave --probe "
            "out."
        )
    space = "features" if method.network.projector is None else "projection"
    size = getattr(config.settings, "replay_batch", REPLAY_BATCH)
    return PrototypeProbe(config.probe_every, config.seed, size, space)


def _projections(method: AnyMethod) -> Tensor:
    """Return the projections of all images in the memory, each of length 1, on the CPU."""
    network = method.network
    with network.evaluating():
        parts = [
            network.embed(network.encode(method.normalise(images)))
            for images in method.memory.image_batches(EVAL_BATCH)
        ]
        return torch.cat(parts).cpu().double()


def _means(z: Tensor, labels: Tensor, classes: list[int]) -> Tensor:
    """Return the mean row of each class."""
    return torch.stack([z[labels == label].mean(dim=0) for label in classes])


def _mean(values: list[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
