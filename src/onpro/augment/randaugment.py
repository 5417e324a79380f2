"""RandAugment (Cubuk et al., 2020): random operations of one strength, in batches on the device.

Every operation is a map of positions, a blend with a degenerate image, or a table of pixel values.
A batch passes all three, of which those not drawn change nothing. So the operations need not be
known on the host, and each image may have its own.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, conv2d, grid_sample

from onpro.augment.constants import constant

OPERATIONS = (
    "identity",
    "shear-x",
    "shear-y",
    "translate-x",
    "translate-y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
)
BINS = 31
"""Strengths are 0 … 30."""
HIGHEST = 255


@dataclass(frozen=True)
class RandAugmentation:
    """Operations one after the other, on pixels in [0, 1], which become multiples of 1/255."""

    number: int = 3
    """How many operations."""
    magnitude: int = 15
    """Their strength, from 0 to 30."""
    per: Literal["batch", "image"] = "batch"
    """Whether all images of a batch get the same operations, as in the originals."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, 3, h, w)."""
        n, device = len(images), images.device
        draws = (self.number, n if self.per == "image" else 1)
        operations = torch.randint(len(OPERATIONS), draws, generator=generator, device=device)
        signs = 1 - 2.0 * torch.randint(2, draws, generator=generator, device=device)
        pixels = (images * (HIGHEST + 1 - 1e-3)).floor().clamp(0, HIGHEST)
        for operation, sign in zip(operations, signs, strict=True):
            pixels = apply(pixels, operation.expand(n), sign.expand(n), self.magnitude)
        return pixels / HIGHEST


def apply(pixels: Tensor, operation: Tensor, sign: Tensor, magnitude: int) -> Tensor:
    """Apply one operation to each image.

    Args:
        pixels: (n, 3, h, w), whole numbers from 0 to 255.
        operation: (n,) indices of `OPERATIONS`.
        sign: (n,) −1 or 1, the direction of operations that have one.
        magnitude: the strength, from 0 to 30.
    """
    strength = magnitude / (BINS - 1)
    pixels = moved(pixels, operation, sign * strength)
    pixels = blended(pixels, operation, 1 + 0.9 * strength * sign)
    return looked_up(pixels, operation, magnitude)


def is_(operation: Tensor, *names: str) -> Tensor:
    """Which images get one of the operations, (n,)."""
    chosen = [operation == OPERATIONS.index(name) for name in names]
    return torch.stack(chosen).any(dim=0)


def moved(pixels: Tensor, operation: Tensor, strength: Tensor) -> Tensor:
    """Shear by up to 0.3, translate by up to 45 % or rotate by up to 30°; what enters is black."""
    height, width = pixels.shape[-2:]

    def only(name: str, value: Tensor) -> Tensor:
        return torch.where(is_(operation, name), value, 0.0)

    angle = only("rotate", strength * (torch.pi / 6))
    shear_x, shear_y = only("shear-x", 0.3 * strength), only("shear-y", 0.3 * strength)
    shift_x = only("translate-x", (150 / 331 * width * strength).trunc())
    shift_y = only("translate-y", (150 / 331 * height * strength).trunc())
    # From output to input positions, in units of half an image. A shear fixes the first pixel's
    # corner, a rotation the centre.
    ratio = width / height
    cos, sin = angle.cos(), angle.sin()
    to_x = cos, (shear_x - sin) / ratio, shear_x / ratio - 2 * shift_x / width
    to_y = (shear_y + sin) * ratio, cos, shear_y * ratio - 2 * shift_y / height
    matrix = torch.stack([torch.stack(to_x, dim=1), torch.stack(to_y, dim=1)], dim=1)
    grid = affine_grid(matrix, list(pixels.shape), align_corners=False)
    return grid_sample(pixels, grid, mode="nearest", align_corners=False)


def blended(pixels: Tensor, operation: Tensor, factor: Tensor) -> Tensor:
    """Move away from, or towards, a black, a gray, a mean gray or a blurred image."""
    weights = constant((0.2989, 0.587, 0.114), pixels.device)[None, :, None, None]
    gray = (pixels * weights).sum(dim=1, keepdim=True).floor()
    degenerate = torch.zeros_like(pixels)
    for name, other in (
        ("color", gray),
        ("contrast", gray.mean(dim=(1, 2, 3), keepdim=True)),
        ("sharpness", smoothed(pixels)),
    ):
        degenerate = torch.where(per_image(is_(operation, name)), other, degenerate)
    chosen = is_(operation, "brightness", "color", "contrast", "sharpness")
    factor = per_image(torch.where(chosen, factor, 1.0))
    return (factor * pixels + (1 - factor) * degenerate).clamp(0, HIGHEST).floor()


def smoothed(pixels: Tensor) -> Tensor:
    """Blur with a 3 × 3 kernel whose centre counts 5 times; the border stays as it is."""
    if min(pixels.shape[-2:]) <= 2:
        return pixels
    kernel = constant((1, 1, 1, 1, 5, 1, 1, 1, 1), pixels.device).view(1, 1, 3, 3) / 13
    inner = conv2d(pixels, kernel.expand(pixels.shape[1], 1, 3, 3), groups=pixels.shape[1])
    blurred = pixels.clone()
    blurred[..., 1:-1, 1:-1] = inner.round()
    return blurred


def looked_up(pixels: Tensor, operation: Tensor, magnitude: int) -> Tensor:
    """Replace pixels by a table of each channel: posterize, solarize, autocontrast, equalize."""
    n, channels = pixels.shape[:2]
    values = pixels.flatten(2)
    index = values.long()
    every = torch.arange(HIGHEST + 1, device=pixels.device, dtype=pixels.dtype)
    bits = 8 - round(4 * magnitude / (BINS - 1))
    threshold = HIGHEST * (1 - magnitude / (BINS - 1))
    step = 2 ** (8 - bits)
    tables = {
        "posterize": (every / step).floor() * step,
        "solarize": torch.where(every >= threshold, HIGHEST - every, every),
        "autocontrast": stretched(values, every),
        "equalize": equalized(index, every),
    }
    table = every.expand(n, channels, -1)
    for name, other in tables.items():
        table = torch.where(is_(operation, name)[:, None, None], other, table)
    return table.gather(2, index).view_as(pixels)


def stretched(values: Tensor, every: Tensor) -> Tensor:
    """Tables (n, channels, 256) that map the darkest pixel to 0 and the brightest to 255."""
    low, high = values.amin(dim=2, keepdim=True), values.amax(dim=2, keepdim=True)
    flat = high == low
    scale = HIGHEST / torch.where(flat, HIGHEST, high - low)
    low = torch.where(flat, 0.0, low)
    return ((every - low) * scale).clamp(0, HIGHEST).floor()


def equalized(index: Tensor, every: Tensor) -> Tensor:
    """Tables (n, channels, 256) after which all values are about equally frequent."""
    counts = torch.zeros(*index.shape[:2], HIGHEST + 1, dtype=every.dtype, device=every.device)
    counts.scatter_add_(2, index, torch.ones_like(index, dtype=every.dtype))
    last = counts.gather(2, index.amax(dim=2, keepdim=True))
    step = ((index.shape[2] - last) / HIGHEST).floor()
    below = counts.cumsum(dim=2) - counts
    table = ((below + (step / 2).floor()) / step.clamp(min=1)).floor().clamp(0, HIGHEST)
    table[..., 0] = 0
    return torch.where(step == 0, every, table)


def per_image(values: Tensor) -> Tensor:
    """Values (n,) to combine with images (n, 3, h, w)."""
    return values[:, None, None, None]
