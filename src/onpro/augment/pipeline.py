"""Augmentations by name, and their combinations."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from onpro.augment.crop import CropAugmentation
from onpro.augment.dvc import DvcAugmentation
from onpro.augment.normalise import Normalise
from onpro.augment.ocm import OcmAugmentation
from onpro.augment.scr import ScrAugmentation
from onpro.errors import unknown


class Augmentation(Protocol):
    """A random variation of a batch of images; each call draws anew.

    Images (n, 3, h, w) are float32; the generator lives on their device and is the only source
    of randomness.
    """

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The varied images, in the shape and scale of the given ones."""
        ...


def unchanged(images: Tensor, generator: torch.Generator) -> Tensor:
    """The images as they are; draws nothing."""
    return images


@dataclass(frozen=True)
class Chain:
    """One augmentation after the other."""

    parts: tuple[Augmentation, ...]

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """The images after all parts, first to last."""
        for part in self.parts:
            images = part(images, generator)
        return images


@dataclass(frozen=True)
class OnPixels:
    """An augmentation made for pixels of 0…1, used on normalised images."""

    augmentation: Augmentation
    normalise: Normalise

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Back to pixels, varied, normalised again."""
        return self.normalise(self.augmentation(self.normalise.inverse(images), generator))


_BUILDERS: dict[str, Callable[[Normalise, bool], Augmentation]] = {
    "none": lambda _, __: unchanged,
    "ocm": lambda _, fused: OcmAugmentation(fused=fused),
    "crop": lambda normalise, _: CropAugmentation(fill=normalise.black),
    "scr": lambda normalise, _: OnPixels(ScrAugmentation(), normalise),
    "dvc": lambda normalise, _: OnPixels(DvcAugmentation(), normalise),
}

NAMES: tuple[str, ...] = tuple(_BUILDERS)
"""Every name `build` knows."""


def parts_of(name: str) -> list[str]:
    """The names joined by "+", each known to `build`, or a mistake of the user."""
    names = name.split("+")
    for part in names:
        if part not in _BUILDERS:
            raise unknown("augmentation", part, _BUILDERS)
    return names


def build(name: str, normalise: Normalise, *, fused: bool = False) -> Augmentation:
    """The augmentation of that name for images normalised like that.

    Names joined by "+" are applied from left to right: the paper gives some methods their own
    augmentation on top of the common one, as in "scr+ocm". A GPU can do some of them in fused
    kernels, with the same result but for rounding.
    """
    parts = tuple(_BUILDERS[part](normalise, fused) for part in parts_of(name))
    return parts[0] if len(parts) == 1 else Chain(parts)
