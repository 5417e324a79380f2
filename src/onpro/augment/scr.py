"""The augmentation of SCR: resized crop, flip, colour jitter, grayscale, drawn for each image."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from onpro.augment.color import ColorJitter, JitterDraw, grayscale_where, jitter
from onpro.augment.geometry import (
    crop_positions,
    draw_crop_sides,
    draw_integers,
    image_sides,
    sample,
)


@dataclass(frozen=True, eq=False)
class ScrDraw:
    """What one call does to each of its n images, or to all alike where n is 1."""

    corner: Tensor
    """(2, n): column and row of the crop's first pixel, whole numbers as floats."""
    sides: Tensor
    """(2, n): width and height of the crop in pixels, whole numbers as floats."""
    flip: Tensor
    """(n,): whether the crop is mirrored."""
    jitter: JitterDraw
    """How the colours change."""
    gray: Tensor
    """(n,): whether the image loses its colour in the end."""


def apply(images: Tensor, draw: ScrDraw) -> Tensor:
    """Crop resized to the whole image, flip, jitter, grayscale of pixels (n, 3, h, w) of 0…1."""
    height, width = images.shape[-2:]
    x = _box_positions(width, draw.corner[0], draw.sides[0])
    x = torch.where(draw.flip[:, None], x.flip(1), x)
    y = _box_positions(height, draw.corner[1], draw.sides[1])
    n = len(images)
    views = sample(images, x.expand(n, -1), y.expand(n, -1))
    return grayscale_where(draw.gray, jitter(views, draw.jitter))


def _box_positions(side: int, start: Tensor, length: Tensor) -> Tensor:
    """Positions (n, side) that resize a box; pixels beyond the box's edge are not mixed in."""
    centre = (2 * start + length - side) / side
    to_outermost_pixel = (length - 1) / side
    return crop_positions(side, length / side, centre).clamp(
        (centre - to_outermost_pixel)[:, None], (centre + to_outermost_pixel)[:, None]
    )


@dataclass(frozen=True)
class ScrAugmentation:
    """T_scr, on pixels of 0…1; parameters are drawn for each image by itself.

    Defaults are those of the official code.
    """

    area: tuple[float, float] = (0.2, 1.0)
    """Range of the crop's area as a fraction of the image's."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    jitter: ColorJitter = field(default_factory=lambda: ColorJitter(probability=0.8))
    """Colour jitter: 0.4 brightness, 0.4 contrast, 0.4 saturation, 0.1 hue, probability 0.8."""
    gray: float = 0.2
    """Probability of grayscale."""

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> ScrDraw:
        """Parameters for n images."""
        sides = draw_crop_sides(n, height, width, self.area, generator)
        room = image_sides(height, width, generator.device) - sides
        u = torch.rand((4, n), generator=generator, device=generator.device)
        return ScrDraw(
            corner=draw_integers(u[:2], room + 1),
            sides=sides,
            flip=u[2] < self.flip,
            jitter=self.jitter.draw(n, generator),
            gray=u[3] < self.gray,
        )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A new variation of each image (n, 3, h, w)."""
        n, _, height, width = images.shape
        return apply(images, self.draw(n, height, width, generator))
