"""Base class of encoders."""

from typing import TYPE_CHECKING

from torch import Tensor, nn


class Encoder(nn.Module):
    """A module that maps images (n, channels, height, width) to features (n, out_features)."""

    out_features: int
    stage_widths: tuple[int, ...] = ()
    """Numbers of channels of the maps that `stages` returns; empty if there is no such method."""

    def stages(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps (n, channels, height, width) after each stage, the last last.

        An encoder that has it gives features at several depths, as MOSE needs them.
        """
        raise NotImplementedError(f"{type(self).__name__} has no stages")

    if TYPE_CHECKING:

        def __call__(self, images: Tensor) -> Tensor:
            """Return the features (n, out_features) of images."""
            ...


def mean_over_positions(maps: Tensor) -> Tensor:
    """Return the mean (n, channels) of each of the maps (n, channels, height, width).

    Channels come last in memory. Taken in that order, the mean has a gradient that is laid out like
    the maps; otherwise the backward pass of the ReLU before it takes ten times as long on a CPU.
    """
    return maps.permute(0, 2, 3, 1).mean((1, 2))
