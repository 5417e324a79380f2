"""The contrast between rotated images that OCM introduced and OnPro took over.

Guo et al., "Online Continual Learning through Mutual Information Maximization", ICML 2022.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro import losses
from onpro.augment import check_rotation, rotated_labels, rotations
from onpro.methods.base import Context
from onpro.methods.settings import MAX_DIMENSION, MIN_TEMPERATURE, AdamSettings, require
from onpro.nn.network import Network
from onpro.randomness import Generators


@dataclass(frozen=True)
class ContrastSettings(AdamSettings):
    """Settings of the contrast between rotated images."""

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
        """Refuse values that cannot work."""
        super().check()
        self.require_above(0, "similarity_scale", "similarity_scale_first")
        self.require_at_least(MIN_TEMPERATURE, "instance_temperature")
        self.require_at_least(0, "replay_per_class")
        self.require_between(0, MAX_DIMENSION, "projection")

    def replay_size(self, classes: int) -> int:
        """Number of images replayed after the first task, when so many classes have been seen."""
        limit = self.replay_per_class * classes if self.replay_per_class else self.replay_batch
        return min(self.replay_batch, limit)


class RotationContrast:
    """L_INS: contrast between two views of rotated images, each rotation a class of its own."""

    def __init__(
        self, settings: ContrastSettings, context: Context, network: Network, random: Generators
    ) -> None:
        check_rotation(context.image_shape, settings.rotations)
        self.settings, self.network = settings, network
        width = network.encoder.out_features
        slices = settings.feature_slice and settings.projection > 0
        require(
            not slices or settings.projection <= width,
            f"a projection of {settings.projection} dimensions is wider than the encoder's "
            f"{width} features: make it narrower or switch the feature slice off.",
        )
        self._slices, self._random = slices, random

    def rotate(self, images: Tensor) -> Tensor:
        """All rotations of the images (n, 3, s, s), block after block, (rotations·n, 3, s, s)."""
        return rotations(images, self.settings.rotations)

    def labels(self, labels: Tensor) -> Tensor:
        """Labels of the rotated images: those of another block belong to another class."""
        return rotated_labels(labels, self.settings.rotations, self.network.classes)

    def loss(
        self,
        form: Callable[[Tensor, Tensor, float], Tensor],
        features: Tensor,
        labels: Tensor,
        *,
        first_task: bool,
    ) -> Tensor:
        """The contrast between images.

        Args:
            form: L_n or L_u, of similarities, labels of one view, and the temperature.
            features: (2·rotations·n, features) of both views of the rotated images.
            labels: (n,).
            first_task: whether the stream is in its first task.
        """
        settings = self.settings
        scale = settings.similarity_scale_first if first_task else settings.similarity_scale
        similarity = self.similarity(features, scale)
        return form(similarity, self.labels(labels), settings.instance_temperature)

    def similarity(self, features: Tensor, scale: float) -> Tensor:
        """Similarities between images, features (n, features) → (n, n)."""
        z = self.network.embed(features)
        if not self._slices:
            return scale * (z @ z.T)
        start = slice_start(features.shape[1] - z.shape[1], self._random["slice"])
        return losses.slice_similarity(z, normalize(features), start, scale)


def slice_start(positions: int, generator: torch.Generator) -> Tensor:
    """d: a random first feature of the slice, (1,); the last feature is never used."""
    return torch.randint(max(1, positions), (1,), generator=generator, device=generator.device)
