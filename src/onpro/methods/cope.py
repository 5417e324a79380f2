"""CoPE, continual prototype evolution: prototypes that move slowly, images drawn to them.

De Lange and Tuytelaars, "Continual Prototype Evolution: Learning Online from Non-Stationary Data
Streams", ICCV 2021.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onpro import losses
from onpro.errors import counted
from onpro.memory.per_class import PerClassMemory
from onpro.methods.base import Context, Method, room_for
from onpro.methods.prototype_network import PrototypeNetwork
from onpro.methods.registry import register
from onpro.methods.replay import ReplaySettings
from onpro.methods.settings import require, require_dimension
from onpro.streams import Batch

NO_CLASS = -1
"""Label of an image that takes no part."""

EMBEDDING_OF_UNKNOWN = 256
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
        """Refuse what cannot work."""
        super().check()
        require(
            self.temperature >= 0.02,
            f"the temperature must be at least 0.02, not {self.temperature}.",
        )
        require(
            0 <= self.prototype_momentum <= 1,
            f"the prototype momentum must lie between 0 and 1, not {self.prototype_momentum}.",
        )
        require_dimension(self.embedding, "embedding")


@register(
    "cope",
    CoPESettings,
    title="Continual prototype evolution",
    paper="Continual Prototype Evolution: Learning Online from Non-Stationary Data Streams",
    year=2021,
    memory="images, a reservoir for each class",
    inference="nearest prototype",
    images_per_step="74",
)
class CoPE(Method[CoPESettings]):
    """L = PPP(X and Xb), in one forward; prototypes are constants of it and move afterwards."""

    network: PrototypeNetwork
    memory: PerClassMemory  # type: ignore[assignment] # another kind of memory

    def __init__(self, settings: CoPESettings, context: Context) -> None:
        super().__init__(settings, context)
        size, classes = context.memory, context.num_classes or 1
        require(
            size >= classes,
            f"a memory of {counted(size, 'image')} has no room for {classes} classes: "
            f"give at least {classes}.",
        )
        dimension = settings.embedding or context.num_classes or EMBEDDING_OF_UNKNOWN
        self.network = self.make_network(kind=PrototypeNetwork, projection=dimension)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        with room_for(size, context.device):
            self.memory = PerClassMemory(size, context.image_shape, device=context.device)

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on the batch and replay together, then prototypes, then the memory."""
        images, labels = self.with_replay(self.vary(self.prepare(batch.images)), batch.labels)
        self.network.known.index_fill_(0, batch.labels, True)
        embeddings = self.network.embed(self.encode(images))
        terms = {}
        if len({*self.memory.classes, *batch.classes}) > 1:  # one class has nothing to be told from
            terms["ppp"] = losses.pseudo_prototypical_loss(
                embeddings,
                labels,
                self.network.prototypes,
                self.network.known,
                self.settings.temperature,
            )
            self.descend(terms["ppp"])
        self.move_prototypes(embeddings.detach(), labels)
        generator = self.random["memory"]
        self.memory.update(batch.images, batch.labels, batch.classes, generator)
        return terms

    def with_replay(self, new: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The new images and replayed ones, drawn class by class.

        How many are stored is known to the device alone. Where they are fewer than it seems, some
        are shown twice, the second time without a class.
        """
        if not self.memory.most:
            return new, labels
        slots, exists = self.memory.draw(self.settings.replay_batch, self.random["memory"])
        replay = self.memory.take(slots)
        replayed = self.vary(self.prepare(replay.images))
        of_replay = replay.labels.masked_fill(~exists, NO_CLASS)
        return torch.cat([new, replayed]), torch.cat([labels, of_replay])

    def move_prototypes(self, embeddings: Tensor, labels: Tensor) -> None:
        """For each class of the step p ← β·p + (1−β)·mean, of embeddings before its update.

        Prototypes are not brought back to length 1.
        """
        network, momentum = self.network, self.settings.prototype_momentum
        means, counts = losses.class_means(embeddings, labels, network.classes)
        moved = momentum * network.prototypes + (1 - momentum) * means
        network.prototypes = torch.where(counts[:, None] > 0, moved, network.prototypes)

    def grow(self, classes: int) -> None:
        """Make room for further prototypes; says so where there is none left for their images."""
        if self.network.classes <= self.memory.capacity < classes:
            logging.getLogger(__name__).warning(
                "cope gives all classes equal shares of the memory: %d images are too few for %d "
                "classes, and none is kept from now on.",
                self.memory.capacity,
                classes,
            )
        super().grow(classes)

    def forget(self, label: int) -> None:
        """Give a class up: its images, its prototype."""
        self.memory.remove(label)
        self.network.forget(label, self.random["growth"])

    def classes_in(self, state: Mapping[str, Any]) -> int:
        """Number of classes a saved state has room for."""
        return len(state["network"]["prototypes"])
