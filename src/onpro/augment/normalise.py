"""Normalisation of pixels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.constants import per_channel
from onpro.errors import UserError


@dataclass(frozen=True)
class Normalise:
    """Normalise pixels: (pixel − mean) / std per channel, pixels scaled to [0, 1]."""

    mean: tuple[float, ...]
    """Mean of each channel, of pixels in [0, 1]."""
    std: tuple[float, ...]
    """Standard deviation of each channel, of pixels in [0, 1]."""

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std, default=0.0) <= 0:
            raise UserError(
                "normalisation needs one mean and one positive standard deviation per channel, "
                f"not {self.mean} and {self.std}."
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise uint8 images, or float images in [0, 1], to float32."""
        white = 255 if images.dtype == torch.uint8 else 1
        slope = per_channel(tuple(1 / (white * s) for s in self.std), images.device)
        return torch.addcmul(per_channel(self.black, images.device), images.float(), slope)

    def inverse(self, images: Tensor) -> Tensor:
        """Return the pixels, in [0, 1], of normalised images."""
        mean, std = per_channel(self.mean, images.device), per_channel(self.std, images.device)
        return torch.addcmul(mean, images, std)

    @property
    def black(self) -> tuple[float, ...]:
        """The normalised value of a black pixel, −mean / std per channel."""
        return tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))
