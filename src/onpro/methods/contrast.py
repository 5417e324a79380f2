"""What OCM and OnPro share: contrast between rotated images, and how much is replayed.

Guo et al., "Online Continual Learning through Mutual Information Maximization", ICML 2022, whose
parts OnPro took over as they are.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro import losses
from onpro.augment import check_rotation, rotated_labels, rotations
from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context, Method, total
from onpro.methods.settings import Settings, require, require_dimension, require_temperature
from onpro.nn.optimizers import Adam
from onpro.streams import Batch


@dataclass(frozen=True)
class ContrastSettings(Settings):
    """Settings of the contrast between rotated images."""

    learning_rate: float = 1e-3
    """Learning rate of Adam (default from the paper)."""

    weight_decay: float = 1e-4
    """Weight decay of Adam, added to the gradient (default from the paper)."""

    betas: tuple[float, float] = (0.9, 0.99)
    """Betas of Adam (default from the official code)."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    replay_per_class: int = 7
    """After the first task at most this many replayed images for each class seen so far; 0 for no
    such limit (default from the official code)."""

    instance_temperature: float = 0.07
    """Temperature of the contrast between images (default from the paper)."""

    rotations: Literal[1, 4, 16] = 16
    """Rotated copies of each image in the contrast between images (default from the official
    code)."""

    projection: int = 128
    """Dimension of the linear projection, 0 for none (default from the paper)."""

    feature_slice: bool = True
    """Compare projections with a random slice of the features too (default from the official
    code)."""

    similarity_scale_first: float = 1.0
    """Scale of similarities between images in the first task (default from the official code)."""

    similarity_scale: float = 0.5
    """Scale of similarities between images in later tasks (default from the official code for
    CIFAR-10)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        positive = {
            "learning rate": self.learning_rate,
            "similarity scale": self.similarity_scale,
            "first similarity scale": self.similarity_scale_first,
        }
        for name, value in positive.items():
            require(value > 0, f"the {name} must be above 0, not {value}.")
        require_temperature(self.instance_temperature, "instance temperature")
        require(self.weight_decay >= 0, "the weight decay must not be negative.")
        require(all(0 <= b < 1 for b in self.betas), "betas must be at least 0 and below 1.")
        require(self.replay_batch >= 1, "the replay batch must hold at least 1 image.")
        require(self.replay_per_class >= 0, "the replay limit per class must not be negative.")
        require_dimension(self.projection, "projection")


C = TypeVar("C", bound=ContrastSettings)


class ContrastMethod(Method[C], ABC):
    """A network with a projector, trained by Adam with the contrast between rotated images."""

    def __init__(self, settings: C, context: Context) -> None:
        super().__init__(settings, context)
        check_rotation(context.image_shape, settings.rotations)
        self.network = self.make_network(projection=settings.projection)
        width: int = self.network.encoder.out_features
        require(
            not self._slices or settings.projection <= width,
            f"a projection of {settings.projection} dimensions is wider than the encoder's "
            f"{width} features: make it narrower or switch the feature slice off.",
        )
        self.optimizer = Adam(
            self.network.parameters(),
            settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One Adam step, then the memory's update."""
        learn = self.learn_first_task if self.progress.task == 0 else self.learn_later_task
        terms = learn(self.prepare(batch.images), batch.labels)
        self.descend(total(terms))
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    @abstractmethod
    def learn_first_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The terms of the loss in the first task, of new images as network input."""

    @abstractmethod
    def learn_later_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The terms of the loss in later tasks."""

    @property
    def learns_new_by_replay_only(self) -> bool:
        """In later tasks the cross-entropy is that of replayed images."""
        return True

    def replay_size(self) -> int:
        """At most `replay_per_class` images for each class seen so far."""
        most, each = self.settings.replay_batch, self.settings.replay_per_class
        return min(most, each * len(self.progress.seen)) if each else most

    # Views and embeddings

    def rotated_views(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The rotated images, block after block, and their augmented versions."""
        rotated = rotations(images, self.settings.rotations)
        return self.first_view(rotated), self.vary(rotated)

    def first_view(self, images: Tensor) -> Tensor:
        """The image itself."""
        return images

    def rotated_labels(self, labels: Tensor) -> Tensor:
        """Labels of rotated images: those of another block belong to another class."""
        return rotated_labels(labels, self.settings.rotations, self.network.classes)

    def encode_views(
        self, new: tuple[Tensor, Tensor], replay: tuple[Tensor, Tensor], *others: Tensor
    ) -> tuple[Tensor, ...]:
        """Features of both views of new and of replayed images, which go in one forward.

        Then those of further batches, each of which has a forward of its own.
        """
        of_views, *of_others = self.encode_each(torch.cat([*new, *replay]), *others)
        of_new, of_replay = torch.split(of_views, [2 * len(new[0]), 2 * len(replay[0])])
        return of_new, of_replay, *of_others

    def embed(self, features: Tensor) -> Tensor:
        """z: unit projections of features."""
        return normalize(self.network.project(features))

    # Terms of the loss

    @property
    def _slices(self) -> bool:
        return self.settings.feature_slice and bool(self.settings.projection)

    def similarity(self, features: Tensor) -> Tensor:
        """Similarities between images, features (2B, width) → (2B, 2B)."""
        settings = self.settings
        first = self.progress.task == 0
        scale = settings.similarity_scale_first if first else settings.similarity_scale
        z = self.embed(features)
        if not self._slices:
            return scale * (z @ z.T)
        start = self.slice_start(features.shape[1] - z.shape[1])
        return losses.slice_similarity(z, normalize(features), start, scale)

    def slice_start(self, positions: int) -> Tensor:
        """d: a random first feature of the slice, (1,); the last feature is never used."""
        generator, device = self.random["slice"], self.context.device
        return torch.randint(max(1, positions), (1,), generator=generator, device=device)

    def instance_new(self, features: Tensor, labels: Tensor) -> Tensor:
        """L_n: contrast between the new images."""
        return self.instance_loss(features, labels, losses.new_instance_loss)

    def instance_replay(self, features: Tensor, labels: Tensor) -> Tensor:
        """L_u: contrast between the replayed images."""
        return self.instance_loss(features, labels, losses.replay_instance_loss)

    def instance_loss(
        self,
        features: Tensor,
        labels: Tensor,
        official: Callable[[Tensor, Tensor, float], Tensor],
    ) -> Tensor:
        """Contrast between images of equal class and equal rotation."""
        similarity = self.similarity(features)
        temperature = self.settings.instance_temperature
        return official(similarity, self.rotated_labels(labels), temperature)
