"""GDumb, greedy sampler and dumb learner: keep a balanced memory, train anew on it alone.

Prabhu et al., "GDumb: A Simple Approach that Questions Our Progress in Continual Learning",
ECCV 2020.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from onpro.memory.greedy_balanced import GreedyBalancedMemory
from onpro.memory.memory import room_for
from onpro.methods.base import Context, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import OptimizerSettings, require
from onpro.randomness import derive_seed
from onpro.recipes import PAPER, TUNED, Recipe
from onpro.streams import Batch

MAX_EPOCHS = 10_000
"""Forty times as many as in GDumb's own code: more would never end."""


@dataclass(frozen=True)
class GDumbSettings(OptimizerSettings):
    """Settings of GDumb."""

    epochs: int = 70
    """Passes over the memory after each task (default from the paper)."""

    train_batch: int = 10
    """Number of stored images in each training step (default from the paper)."""

    schedule: Literal["constant", "cosine"] = "constant"
    """Learning rate over the epochs: constant (default from the official code of the paper's
    framework), or falling along cosines of 1, 2, 4, … epochs after a first epoch at a tenth
    (GDumb's own code)."""

    minimum_learning_rate: float = 5e-4
    """Where each cosine ends; a constant rate does not use it (default from the paper)."""

    clip: float = 10.0
    """Largest norm of the gradient, over all parameters (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_between(1, MAX_EPOCHS, "epochs")
        self.require_at_least(1, "train_batch")
        self.require_above(0, "clip")
        highest = self.learning_rate if self.schedule == "cosine" else math.inf
        require(
            0 <= self.minimum_learning_rate <= highest,
            "the minimum learning rate must lie between 0 and the learning rate.",
        )

    def rate(self, epoch: int) -> float:
        """Learning rate of an epoch, counted from 0."""
        highest, lowest = self.learning_rate, self.minimum_learning_rate
        if self.schedule == "constant":
            return highest
        if epoch == 0:
            return 0.1 * highest
        length = 1 << (epoch.bit_length() - 1)
        through = (epoch - length) / length
        return lowest + (highest - lowest) * (1 + math.cos(math.pi * through)) / 2


@register(
    "gdumb",
    GDumbSettings,
    title="Greedy sampler and dumb learner",
    paper="GDumb: A Simple Approach that Questions Our Progress in Continual Learning",
    year=2020,
    memory="images, balanced classes",
    inference="linear head",
    images_per_step="0, and 70 times the memory after each task",
    data={"tiny": {"epochs": 20}},
    recipes={
        "paper": PAPER,
        "tuned": TUNED,
        "original": Recipe(
            "its own code's schedule and augmentation, without its CutMix",
            {
                "augmentation": "crop",
                "epochs": 256,
                "train_batch": 16,
                "learning_rate": 0.05,
                "schedule": "cosine",
                "momentum": 0.9,
                "weight_decay": 1e-6,
            },
        ),
    },
)
class GDumb(Method[GDumbSettings]):
    """Steps only fill the memory; after each task a new network learns the memory by CE."""

    memory: GreedyBalancedMemory
    predicts_from_memory = True
    has_plain_memory = False

    def __init__(self, settings: GDumbSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        with room_for(context.memory, context.device):
            self.memory = GreedyBalancedMemory(
                context.memory, context.image_shape, self.network.classes, device=context.device
            )
        self.learned = torch.zeros(0, dtype=torch.int64, device=context.device)
        """(n,): when the images that the network was trained on arrived."""

    def learn(self, batch: Batch) -> Terms:
        """Update the memory; nothing is trained."""
        draws = torch.rand(
            len(batch),
            dtype=torch.float64,
            generator=self.random["memory"],
            device=self.context.device,
        )
        self.memory.update(batch.images, batch.labels, draws)
        return {}

    def rehearsal(self) -> Iterator[Batch]:
        """Reinitialise the network; then the memory in random order, epoch by epoch."""
        classes = self.network.classes
        seed = derive_seed(self.context.seed, f"network after task {self.progress.task}")
        self.network = self.make_network(seed=seed)
        self.optimizer = self.settings.make_optimizer(self.network.parameters())
        self.network.grow(classes, self.optimizer, self.random["growth"])
        stored = len(self.memory)  # the only host–device sync
        size = min(self.settings.train_batch, stored)
        groups = self.optimizer.param_groups
        shares = [group["lr"] / self.settings.learning_rate for group in groups]
        for epoch in range(self.settings.epochs if stored else 0):
            for group, share in zip(groups, shares, strict=True):
                group["lr"] = share * self.settings.rate(epoch)
            shuffled = torch.randperm(
                stored, generator=self.random["training"], device=self.context.device
            )
            for slots in shuffled[: stored // size * size].split(size):
                replay = self.memory.take(slots)
                yield Batch(replay.images, replay.labels, task=None, classes=())
        self.learned = self.memory.fields["arrived"].clone()  # unless an error ends the training

    def rehearse(self, stored: Batch) -> Terms:
        """One optimizer step on stored images, its gradient clipped."""
        logits = self.network.logits(self.augment(self.normalise(stored.images)))
        terms = {"ce": cross_entropy(logits, stored.labels)}
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(terms)
        self.scaler.unscale_(self.optimizer)
        clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.step()
        return terms

    @property
    def is_current(self) -> bool:
        """Whether the network was trained on the memory as it is now."""
        return torch.equal(self.memory.fields["arrived"], self.learned)

    def grow(self, classes: int) -> None:
        """Widen the classifier and the memory's table of classes."""
        super().grow(classes)
        self.memory.grow(self.network.classes)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        self.learned = self.learned.new_zeros(len(state["learned"]))
        super().load_state_dict(state)
