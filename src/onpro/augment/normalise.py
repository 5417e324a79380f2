"""From pixels to what the network sees, and back."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.constants import per_channel
from onpro.errors import UserError


@dataclass(frozen=True)
class Normalise:
    """Pixels scaled to 0…1, minus the mean of their channel, divided by its standard deviation."""

    mean: tuple[float, ...]
    """Mean of each channel of the pixels scaled to 0…1."""
    std: tuple[float, ...]
    """Standard deviation of each channel of the pixels scaled to 0…1."""

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or min(self.std, default=0.0) <= 0:
            raise UserError(
                "normalisation needs one mean and one standard deviation above 0 for each channel, "
                f"not {self.mean} and {self.std}."
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalised float32 images from uint8 images, or from float images of 0…1."""
        white = 255 if images.dtype == torch.uint8 else 1
        slope = per_channel(tuple(1 / (white * s) for s in self.std), images.device)
        return torch.addcmul(per_channel(self.black, images.device), images.float(), slope)

    def inverse(self, images: Tensor) -> Tensor:
        """The pixels, 0…1, of normalised images."""
        mean, std = per_channel(self.mean, images.device), per_channel(self.std, images.device)
        return torch.addcmul(mean, images, std)

    @property
    def black(self) -> tuple[float, ...]:
        """What a black pixel becomes: −mean / std of each channel."""
        return tuple(-m / s for m, s in zip(self.mean, self.std, strict=True))
