"""GDumb, greedy sampler and dumb learner: keep a balanced memory, train anew on it alone.

Prabhu et al., "GDumb: A Simple Approach that Questions Our Progress in Continual Learning",
ECCV 2020.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.nn.utils import clip_grad_norm_

from onpro.memory.greedy_balanced import GreedyBalancedMemory
from onpro.methods.base import Context, Method, room_for
from onpro.methods.descent import DescentSettings
from onpro.methods.registry import register
from onpro.methods.settings import require
from onpro.randomness import derive_seed
from onpro.streams import Batch

MOST_EPOCHS = 10_000
"""Forty times as many as in GDumb's own code: more would never end."""


@dataclass(frozen=True)
class GDumbSettings(DescentSettings):
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
        """Refuse what cannot work."""
        super().check()
        require(
            1 <= self.epochs <= MOST_EPOCHS,
            f"there must be 1 to {MOST_EPOCHS} epochs, not {self.epochs}.",
        )
        require(self.train_batch >= 1, "a training batch must hold at least 1 image.")
        highest = self.learning_rate if self.schedule == "cosine" else math.inf
        require(
            0 <= self.minimum_learning_rate <= highest,
            "the minimum learning rate must lie between 0 and the learning rate.",
        )
        require(self.clip > 0, "the gradient's largest norm must be above 0.")

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
)
class GDumb(Method[GDumbSettings]):
    """Steps only fill the memory; after each task a fresh network learns the memory by CE.

    Predictions before the first task is over are those of an untrained network, later ones those
    of the network trained last, unless `settle` is called before.
    """

    memory: GreedyBalancedMemory

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

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """The memory's update; nothing is trained."""
        draws = torch.rand(
            len(batch),
            dtype=torch.float64,
            generator=self.random["memory"],
            device=self.context.device,
        )
        self.memory.update(batch.images, batch.labels, draws)
        return {}

    def end_task(self) -> None:
        """Forget the network and train a fresh one on the memory."""
        self.learned = self.memory.fields["arrived"].clone()
        classes = self.network.classes
        seed = derive_seed(self.context.seed, f"network after task {self.progress.task}")
        self.network = self.make_network(seed=seed)
        self.optimizer = self.settings.make_optimizer(self.network.parameters())
        self.network.grow(classes, self.optimizer, self.random["growth"])
        stored = len(self.memory)  # the only question asked of the device
        size = min(self.settings.train_batch, stored)
        train_step = self.engine(self, self.train_step)
        for epoch in range(self.settings.epochs if stored else 0):
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.rate(epoch)
            shuffled = torch.randperm(
                stored, generator=self.random["training"], device=self.context.device
            )
            for slots in shuffled[: stored // size * size].split(size):
                replay = self.memory.take(slots)
                images, labels = replay.images, replay.labels
                train_step(Batch(images, labels, task=None, classes=()))

    def settle(self) -> None:
        """Train a fresh network if the memory has changed since the last training.

        It leaves the random generators as they were, so that what is learned does not depend on
        how often somebody asks.
        """
        if not torch.equal(self.memory.fields["arrived"], self.learned):
            random = self.random.state_dict()
            with torch.enable_grad(), self.rounding():
                self.end_task()
            self.random.load_state_dict(random)

    def train_step(self, stored: Batch) -> dict[str, Tensor]:
        """One SGD step on stored images, its gradient clipped."""
        loss = cross_entropy(self.classify(self.vary(self.prepare(stored.images))), stored.labels)
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(loss)
        self.scaler.unscale_(self.optimizer)
        clip_grad_norm_(self.network.parameters(), self.settings.clip)
        self.step()
        return {"ce": loss}

    def grow(self, classes: int) -> None:
        """Widen the classifier and the memory's table of classes."""
        super().grow(classes)
        self.memory.grow(self.network.classes)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; older ones do not say what the network was trained on."""
        state = {"learned": self.learned[:0]} | dict(state)
        self.learned = self.learned.new_zeros(len(state["learned"]))
        super().load_state_dict(state)
