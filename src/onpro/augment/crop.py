"""The augmentation of DER++ and iCaRL: a random shift over a padded border, horizontal flip."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.constants import per_channel


@dataclass(frozen=True, eq=False)
class CropDraw:
    """What one call does to each of its n images; every field is (n,)."""

    right: Tensor
    """Pixels by which the crop lies to the right of the image (int64, negative: left)."""
    down: Tensor
    """Pixels by which the crop lies below the image (int64, negative: above)."""
    flip: Tensor
    """Whether the crop is mirrored."""


def apply(images: Tensor, draw: CropDraw, fill: tuple[float, ...]) -> Tensor:
    """Crops of the images' own size, then flip; what lies outside the image has the fill colour.

    Args:
        images: (n, c, h, w).
        draw: Shift and flip of each image.
        fill: One value for each channel.
    """
    n, channels, height, width = images.shape
    device = images.device
    columns = torch.arange(width, device=device)
    columns = torch.where(draw.flip[:, None], width - 1 - columns, columns) + draw.right[:, None]
    rows = torch.arange(height, device=device) + draw.down[:, None]
    inside_x = (columns >= 0) & (columns < width)
    inside_y = (rows >= 0) & (rows < height)
    pixels = images[
        torch.arange(n, device=device)[:, None, None, None],
        torch.arange(channels, device=device)[:, None, None],
        rows.clamp(0, height - 1)[:, None, :, None],
        columns.clamp(0, width - 1)[:, None, None, :],
    ]
    inside = inside_y[:, None, :, None] & inside_x[:, None, None, :]
    return torch.where(inside, pixels, per_channel(fill, device))


@dataclass(frozen=True)
class CropAugmentation:
    """T_crop: a crop of the image padded by 4 pixels, then a flip; for each image by itself."""

    fill: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Colour of the padding, one value for each channel, in the same scale as the images.

    The original pads with zeros before it normalises, so padding is black: 0 on pixels, and
    `Normalise.black` on normalised images, not 0.
    """
    padding: int = 4
    """Pixels of padding on each side."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    per_batch_offset: bool = False
    """One crop offset for the whole batch, flips still for each image (CCL-DC, MKD)."""

    def draw(self, n: int, generator: torch.Generator) -> CropDraw:
        """Parameters for n images."""
        device = generator.device
        offsets = torch.randint(
            -self.padding,
            self.padding + 1,
            (2, 1 if self.per_batch_offset else n),
            generator=generator,
            device=device,
        ).expand(2, n)
        flip = torch.rand(n, generator=generator, device=device) < self.flip
        return CropDraw(right=offsets[0], down=offsets[1], flip=flip)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A new variation of each image (n, c, h, w)."""
        return apply(images, self.draw(len(images), generator), self.fill)
