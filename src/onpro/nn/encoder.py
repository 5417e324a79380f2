"""What every encoder is."""

from typing import TYPE_CHECKING

from torch import Tensor, nn


class Encoder(nn.Module):
    """Turns images (n, channels, height, width) into features (n, out_features)."""

    out_features: int

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Tensor:
            """The features (n, out_features) of images."""
            ...
