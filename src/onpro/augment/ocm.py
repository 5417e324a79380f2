"""The augmentation of OCM and OnPro: horizontal flip, grayscale, resized crop."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.color import grayscale_where
from onpro.augment.geometry import (
    CANDIDATES,
    crop_positions,
    draw_crop_sides,
    draw_integers,
    image_sides,
    sample,
)


@dataclass(frozen=True, eq=False)
class OcmDraw:
    """What one call does to each of its n images."""

    fraction: Tensor
    """(2, n): the parts of the image's width and of its height that the crop covers."""
    offset: Tensor
    """(2, n): x and y of the crop's centre, from −1 (left, top edge) to 1 (right, bottom edge)."""
    flip: Tensor
    """(n,): whether the image is mirrored before it is cropped."""
    gray: Tensor
    """(n,): whether the image loses its colour."""


def apply(images: Tensor, draw: OcmDraw) -> Tensor:
    """Flip, then grayscale, then resized crop of images (n, 3, h, w), in one resampling.

    The flip reverses the sign of the columns looked up, so it costs nothing; resampling is
    linear and treats all channels alike, so taking the luminance after it changes nothing.
    """
    height, width = images.shape[-2:]
    x = crop_positions(width, draw.fraction[0], draw.offset[0])
    x = torch.where(draw.flip[:, None], -x, x)
    y = crop_positions(height, draw.fraction[1], draw.offset[1])
    return grayscale_where(draw.gray, sample(images, x, y))


@dataclass(frozen=True)
class OcmAugmentation:
    """T_ocm, on normalised images; parameters are drawn for each image by itself.

    Defaults are those of the official code.
    """

    area: tuple[float, float] = (0.3, 1.0)
    """Range of the crop's area as a fraction of the image's."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    gray: float = 0.25
    """Probability of grayscale."""
    fused: bool = False
    """Whether a GPU does it in one kernel; the same but for rounding."""

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> OcmDraw:
        """Parameters for n images: crops lie inside the image, at steps of half a pixel."""
        whole = image_sides(height, width, generator.device)
        sides = draw_crop_sides(n, height, width, self.area, generator)
        room = whole - sides
        u = torch.rand((4, n), generator=generator, device=generator.device)
        return OcmDraw(
            fraction=sides / whole,
            offset=(draw_integers(u[:2], 2 * room + 1) - room) / whole,
            flip=u[2] < self.flip,
            gray=u[3] < self.gray,
        )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A new variation of each image (n, 3, h, w)."""
        n, _, height, width = images.shape
        if self.fused and images.is_cuda:
            from onpro.augment.fused_ocm import fused_ocm

            of_sides = torch.rand((2, n, CANDIDATES), generator=generator, device=images.device)
            of_rest = torch.rand((4, n), generator=generator, device=images.device)
            return fused_ocm(
                images, of_sides, of_rest, area=self.area, flip=self.flip, gray=self.gray
            )
        return apply(images, self.draw(n, height, width, generator))
