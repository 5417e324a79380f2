"""A small encoder for small images on a CPU."""

from torch import Tensor, nn

from onpro.nn.batch_norm import BatchNorm
from onpro.nn.encoder import Encoder, mean_over_positions


class Slim(Encoder):
    """Three 3×3 convolutions with batch norm, the middle one residual, and a global average pool.

    It is not from the paper, and small enough to learn digits of 8×8 pixels on a laptop within
    seconds. The first and the last convolution halve the resolution.

    Args:
        channels: Number of channels of the images.
    """

    out_features = 160
    """More than the 128 dimensions of a projection, because OnPro compares projections with random
    slices of the features."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        width = 32
        self.stage_widths = (width, width, self.out_features)
        self.conv1 = nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False)
        self.bn1 = BatchNorm(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = BatchNorm(width)
        self.conv3 = nn.Conv2d(width, self.out_features, 3, stride=2, padding=1, bias=False)
        self.bn3 = BatchNorm(self.out_features)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, out_features) of images (n, channels, height, width)."""
        return mean_over_positions(self.stages(images)[-1])

    def stages(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps after each convolution."""
        to_convolve, to_add = self.bn1.twice(self.conv1(images))
        x = self.bn2(self.conv2(to_convolve), to_add)
        maps: Tensor = self.bn3(self.conv3(x))
        return [to_convolve, x, maps]
