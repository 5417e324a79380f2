"""The augmentation of DVC: SCR's list, with one draw for the whole batch."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from onpro.augment.color import ColorJitter
from onpro.augment.scr import ScrAugmentation, apply


@dataclass(frozen=True)
class DvcAugmentation:
    """T_dvc, on pixels of 0…1: all images of a call are varied alike, and always jittered.

    The official code hands a batch to transforms made for single images.
    """

    steps: ScrAugmentation = field(
        default_factory=lambda: ScrAugmentation(jitter=ColorJitter(probability=1.0))
    )
    """The steps, drawn once for a batch."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A new variation of the images (n, 3, h, w)."""
        height, width = images.shape[-2:]
        return apply(images, self.steps.draw(1, height, width, generator))
