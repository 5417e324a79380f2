"""Build augmentations by name, and compose them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from onpro.augment.crop import CropAugmentation
from onpro.augment.normalise import Normalise
from onpro.augment.ocm import OcmAugmentation
from onpro.augment.scr import DvcAugmentation, ScrAugmentation
from onpro.errors import unknown


class Augmentation(Protocol):
    """A random augmentation of a batch of images.

    Images (n, 3, h, w) are float32. The generator, on the same device, is the only source of
    randomness.
    """

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Return the augmented images, with unchanged shape and scale."""
        ...


def identity(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return the images unchanged, without using the generator."""
    return images


@dataclass(frozen=True)
class Chain:
    """Apply several augmentations in order."""

    parts: tuple[Augmentation, ...]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, 3, h, w)."""
        for part in self.parts:
            images = part(images, generator)
        return images


@dataclass(frozen=True)
class OnPixels:
    """Apply an augmentation of pixels in [0, 1] to normalised images."""

    augmentation: Augmentation
    normalise: Normalise

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment normalised images (n, 3, h, w)."""
        return self.normalise(self.augmentation(self.normalise.inverse(images), generator))


_BUILDERS: dict[str, Callable[[Normalise, bool], Augmentation]] = {
    "none": lambda _, __: identity,
    "ocm": lambda _, fused: OcmAugmentation(fused=fused),
    "crop": lambda normalise, _: CropAugmentation(fill=normalise.black),
    "scr": lambda normalise, _: OnPixels(ScrAugmentation(), normalise),
    "dvc": lambda normalise, _: OnPixels(DvcAugmentation(), normalise),
    "gsa": lambda _, fused: OcmAugmentation(area=(0.6, 1.0), flip=0.0, gray=0.2, fused=fused),
    "mose": lambda _, fused: OcmAugmentation(flip=0.0, fused=fused),
}

NAMES: tuple[str, ...] = tuple(_BUILDERS)
"""Names accepted by `build`."""


def parts_of(name: str) -> list[str]:
    """Split names joined by "+"; raise `UserError` for an unknown one."""
    names = name.split("+")
    for part in names:
        if part not in _BUILDERS:
            raise unknown("augmentation", part, _BUILDERS)
    return names


def build(name: str, normalise: Normalise, *, fused: bool = False) -> Augmentation:
    """Build an augmentation by name.

    Args:
        name: One of `NAMES`, or several joined by "+", which are applied from left to right. The
            paper gives some methods their own augmentation before the common one, as in "scr+ocm".
        normalise: How the images to augment are normalised.
        fused: Whether to use fused GPU kernels where there are any; results agree up to rounding.
    """
    parts = tuple(_BUILDERS[part](normalise, fused) for part in parts_of(name))
    return parts[0] if len(parts) == 1 else Chain(parts)
