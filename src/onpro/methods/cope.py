"""CoPE, continual prototype evolution: prototypes that move slowly, images drawn to them.

De Lange and Tuytelaars, "Continual Prototype Evolution: Learning Online from Non-Stationary Data
Streams", ICCV 2021.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from onpro import losses
from onpro.errors import counted
from onpro.memory.memory import room_for
from onpro.memory.per_class import PerClassMemory
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import MAX_DIMENSION, ReplaySettings, require
from onpro.nn.network import PrototypeNetwork
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER, SHORT_STREAMS, on
from onpro.streams import Batch

DEFAULT_EMBEDDING = 256
"""Dimension of the embedding where neither the stream nor a setting gives one."""


@dataclass(frozen=True)
class CoPESettings(ReplaySettings):
    """Settings of CoPE."""

    learning_rate: float = 0.001
    """Length of the optimizer's steps (default from the paper, for SGD)."""

    temperature: float = 1.0
    """Temperature of the similarities in the loss (default from the paper)."""

    prototype_momentum: float = 0.99
    """How much of a prototype stays when it moves towards the mean of a batch's images of its
    class (default from the paper)."""

    embedding: int = 0
    """Dimension of the embedding; 0 for the number of classes, as in the paper, or 256 where that
    is unknown (default from the official code)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0.02, "temperature")
        self.require_between(0, 1, "prototype_momentum")
        self.require_between(0, MAX_DIMENSION, "embedding")


@register(
    "cope",
    CoPESettings,
    title="Continual prototype evolution",
    paper="Continual Prototype Evolution: Learning Online from Non-Stationary Data Streams",
    year=2021,
    memory="images, a reservoir for each class",
    inference="nearest prototype",
    images_per_step="74",
    data={
        **IMAGENET,
        # Prototypes that move sooner (ours).
        **on(
            SHORT_STREAMS,
            learning_rate=0.05,
            temperature=0.1,
            prototype_momentum=0.9,
            embedding=64,
        ),
    },
    recipes={
        "paper": PAPER,
        "original": FRAMEWORK.varied(
            "its own code's run on CIFAR-10", learning_rate=0.005, temperature=0.1, embedding=256
        ),
    },
)
class CoPE(Method[CoPESettings]):
    """L = PPP(X and Xb) in one forward pass; prototypes are constant in it and move afterwards."""

    network: PrototypeNetwork
    memory: PerClassMemory  # type: ignore[assignment] # another kind of memory
    has_plain_memory = False

    def __init__(self, settings: CoPESettings, context: Context) -> None:
        embedding = settings.embedding or context.num_classes or DEFAULT_EMBEDDING
        super().__init__(replace(settings, embedding=embedding), context)
        size, classes = context.memory, context.num_classes or 1
        require(
            size >= classes,
            f"a memory of {counted(size, 'image')} has no room for {classes} classes: "
            f"give at least {classes}.",
        )
        self.network = self.make_network(kind=PrototypeNetwork, projection=embedding)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        with room_for(size, context.device):
            self.memory = PerClassMemory(size, context.image_shape, device=context.device)

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and replay together, then prototypes, then the memory."""
        network = self.network
        images, labels = self.augment(self.normalise(batch.images)), batch.labels
        if self.memory.max_stored:
            old = self.sample_classes(self.settings.replay_batch)
            images = torch.cat([images, self.augment(old.images)])
            labels = torch.cat([labels, old.labels])
        network.known.index_fill_(0, batch.labels, True)
        embeddings = network.embed(network.features(images))
        terms: Terms = {}
        if len({*self.memory.classes, *batch.classes}) > 1:  # one class alone has no contrast
            terms["ppp"] = losses.pseudo_prototypical_loss(
                embeddings, labels, network.prototypes, network.known, self.settings.temperature
            )
            self.minimise(terms)
        self.move_prototypes(embeddings.detach(), labels)
        generator = self.random["memory"]
        self.memory.update(batch.images, batch.labels, batch.classes, generator)
        return terms

    def course(self) -> Hashable:
        """The number of classes: the memory makes room for a new one."""
        return len(self.progress.seen)

    def sample_classes(self, count: int) -> Labelled:
        """Stored images, sampled class by class.

        How many are stored is known to the device alone. Where there are fewer than it seems, some
        are repeated, the second time without a class.
        """
        slots, exists = self.memory.sample(count, self.random["memory"])
        replay = self.memory.take(slots)
        return Labelled(
            self.normalise(replay.images), replay.labels.masked_fill(~exists, losses.NO_CLASS)
        )

    def move_prototypes(self, embeddings: Tensor, labels: Tensor) -> None:
        """For each class of the step p ← β·p + (1−β)·mean, of embeddings before its update.

        Prototypes are not brought back to length 1.
        """
        network, momentum = self.network, self.settings.prototype_momentum
        means, counts = losses.class_means(embeddings, labels, network.classes)
        moved = momentum * network.prototypes + (1 - momentum) * means
        network.prototypes = torch.where(counts[:, None] > 0, moved, network.prototypes)

    def forget(self, label: int) -> None:
        """Drop a class: its images, its prototype."""
        self.memory.remove(label)
        self.network.forget(label, self.random["growth"])

    def classes_in(self, state: Mapping[str, Any]) -> int:
        """Number of classes a saved state has room for."""
        return len(state["network"]["prototypes"])
