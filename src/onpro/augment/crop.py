"""The augmentation of DER++ and iCaRL: random crop of the padded image, horizontal flip."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.constants import per_channel


@dataclass(frozen=True, eq=False)
class CropParams:
    """Parameters of n images; every field is (n,)."""

    right: Tensor
    """Horizontal offset of the crop in pixels (int64), positive to the right."""
    down: Tensor
    """Vertical offset of the crop in pixels (int64), positive downwards."""
    flip: Tensor
    """Whether the crop is flipped."""


def apply(images: Tensor, params: CropParams, fill: tuple[float, ...]) -> Tensor:
    """Crop the padded images to their own size, then flip them.

    Args:
        images: (n, c, h, w).
        params: Offset and flip of each image.
        fill: Value of the padding, per channel.
    """
    n, channels, height, width = images.shape
    device = images.device
    columns = torch.arange(width, device=device)
    columns = (
        torch.where(params.flip[:, None], width - 1 - columns, columns) + params.right[:, None]
    )
    rows = torch.arange(height, device=device) + params.down[:, None]
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
    """T_crop: crop the image padded by 4 pixels, then flip it; parameters are per image."""

    fill: tuple[float, ...] = (0.0, 0.0, 0.0)
    """Value of the padding, per channel, in the scale of the images.

    The official code zero-pads before it normalises, so normalised images need `Normalise.black`,
    not 0.
    """
    padding: int = 4
    """Pixels of padding on each side."""
    flip: float = 0.5
    """Probability of a horizontal flip."""

    def sample_params(self, n: int, generator: torch.Generator) -> CropParams:
        """Sample parameters for n images."""
        device = generator.device
        offsets = torch.randint(
            -self.padding, self.padding + 1, (2, n), generator=generator, device=device
        )
        flip = torch.rand(n, generator=generator, device=device) < self.flip
        return CropParams(right=offsets[0], down=offsets[1], flip=flip)

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, c, h, w)."""
        return apply(images, self.sample_params(len(images), generator), self.fill)
