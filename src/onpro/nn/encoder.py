"""Base class of encoders."""

from typing import TYPE_CHECKING

from torch import Tensor, nn


class Encoder(nn.Module):
    """A module that maps images (n, channels, height, width) to features (n, out_features)."""

    out_features: int

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Tensor:
            """Return the features (n, out_features) of images."""
            ...
