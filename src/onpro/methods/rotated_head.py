"""Rotated copies of an image as classes of their own, on a classifier with more outputs.

So the paper's "-Rot" baselines are read: class y in rotation q is output blocks·y + q. The outputs
of a class do not depend on how many classes there are, so the classifier can grow.
"""

from abc import ABC
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from onpro.augment import check_rotation, rotations
from onpro.methods.base import Method, S
from onpro.methods.network import Network


class RotatedNetwork(Network):
    """A network whose classifier has `blocks` outputs for each class; 1 is an ordinary network."""

    def __init__(
        self,
        encoder: str,
        image_shape: tuple[int, int, int],
        classes: int,
        *,
        blocks: int,
        seed: int = 0,
    ) -> None:
        super().__init__(encoder, image_shape, classes * blocks, seed=seed)
        self.blocks = blocks

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.classifier.out_features // self.blocks

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images that are not rotated, (n, classes): those of block 0."""
        return super().forward(images)[:, :: self.blocks]

    def grow(
        self, classes: int, optimizer: torch.optim.Optimizer, generator: torch.Generator
    ) -> None:
        """Make room for `classes` classes; old outputs and their optimizer state stay."""
        super().grow(classes * self.blocks, optimizer, generator)


class RotatedHeadMethod(Method[S], ABC):
    """A method that can learn rotated copies of its images as classes of their own.

    It predicts by the outputs of images that are not rotated. With 1 block it is any other method.
    """

    network: RotatedNetwork

    def make_rotated_network(self, blocks: int, classes: int | None = None) -> RotatedNetwork:
        """The network on the run's device, with outputs for 1, 4 or 16 rotations of a class.

        It starts with all announced classes, or with as many as given.
        """
        context = self.context
        check_rotation(context.image_shape, blocks)
        network = RotatedNetwork(
            self.settings.encoder,
            context.image_shape,
            (context.num_classes or 0) if classes is None else classes,
            blocks=blocks,
            seed=context.seed,
        )
        return self.place(network)

    def rotated(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Images (n, 3, s, s) in all rotations, block after block, and the outputs they stand for.

        Returns:
            (blocks·n, 3, s, s) and (blocks·n,).
        """
        blocks = self.network.blocks
        outputs = blocks * labels + torch.arange(blocks, device=labels.device)[:, None]
        return rotations(images, blocks), outputs.flatten()

    def outputs_of(self, label: int) -> range:
        """The classifier's outputs that stand for a class in its rotations."""
        blocks = self.network.blocks
        return range(blocks * label, blocks * (label + 1))

    def classes_in(self, state: Mapping[str, Any]) -> int:
        """Number of classes a saved state has room for."""
        return super().classes_in(state) // self.network.blocks
