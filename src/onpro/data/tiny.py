"""A procedural data set that a small network learns in a few dozen steps, to test code."""

import math

import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split, measure

NOISE = 0.1
"""Standard deviation of the pixel noise; pixels lie in 0…1."""


def tiny(
    *,
    classes: int = 6,
    train_per_class: int = 60,
    test_per_class: int = 20,
    image_size: int = 12,
    seed: int = 0,
) -> ImageSet:
    """Coloured stripes: a class is a hue, an angle and a width; images differ in phase and noise.

    Hue and stripes both tell the class, so that it survives being turned grey or mirrored.

    Args:
        classes: number of classes.
        train_per_class: training images of each class.
        test_per_class: test images of each class.
        image_size: side of the images in pixels.
        seed: of the phases and the noise; equal seeds give equal images on every machine.
    """
    generator = torch.Generator().manual_seed(seed)
    train = _stripes(classes, train_per_class, image_size, generator)
    test = _stripes(classes, test_per_class, image_size, generator)
    mean, std = measure(train.images)
    names = tuple(f"stripes {k}" for k in range(classes))
    return ImageSet(name="tiny", train=train, test=test, classes=names, mean=mean, std=std)


def _stripes(classes: int, per_class: int, size: int, generator: torch.Generator) -> Split:
    labels = torch.arange(classes).repeat(per_class)
    share = labels / classes
    angle = math.pi * share[:, None, None]
    periods = 1.0 + (labels % 3)[:, None, None]
    phase = 2 * math.pi * torch.rand(len(labels), 1, 1, generator=generator)
    y, x = torch.meshgrid(torch.arange(size) / size, torch.arange(size) / size, indexing="ij")
    along = angle.cos() * x + angle.sin() * y
    brightness = 0.5 + 0.5 * (2 * math.pi * periods * along + phase).sin()
    pixels = _colours(share)[:, :, None, None] * brightness[:, None]
    pixels = pixels + NOISE * torch.randn(pixels.shape, generator=generator)
    return Split((pixels.clamp(0, 1) * 255).round().to(torch.uint8), labels)


def _colours(hue: Tensor) -> Tensor:
    """Hues (n,) in 0…1 to colours (n, 3) around the colour wheel."""
    shift = torch.tensor([0.0, 1 / 3, 2 / 3])
    return 0.6 + 0.4 * (2 * math.pi * (hue[:, None] - shift)).cos()
