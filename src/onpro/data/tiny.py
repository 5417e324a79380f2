"""A procedural data set for tests, which a small network learns in a few dozen steps."""

import math

import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split, measure

NOISE = 0.1
"""Standard deviation of the noise on pixels in 0…1."""


def tiny(
    *,
    classes: int = 6,
    train_per_class: int = 60,
    test_per_class: int = 20,
    image_size: int = 12,
    seed: int = 0,
) -> ImageSet:
    """Generate images of coloured stripes.

    A class is a hue, an angle and a width; images of a class differ in phase and noise. Both hue
    and stripes determine the class, so that it survives grayscale and flips.

    Args:
        classes: number of classes.
        train_per_class: number of training images per class.
        test_per_class: number of test images per class.
        image_size: side of the images in pixels.
        seed: seed of phases and noise; equal seeds give equal images on every machine.
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
    """Convert hues (n,) in 0…1 to RGB colours (n, 3)."""
    shift = torch.tensor([0.0, 1 / 3, 2 / 3])
    return 0.6 + 0.4 * (2 * math.pi * (hue[:, None] - shift)).cos()
