"""ResNet-18 for small and large images."""

from typing import Literal

from torch import Tensor, nn
from torch.nn.functional import conv2d, pad

from onpro.nn.batch_norm import BatchNorm
from onpro.nn.encoder import Encoder

Stem = Literal["cifar", "imagenet"]

Twice = tuple[Tensor, Tensor]
"""A feature map twice, for a block's convolution and its shortcut; see `BatchNorm.twice`."""


class ResNet18(Encoder):
    """Four stages of two basic blocks and a global average pool, as in the official code.

    Args:
        width: Number of channels (nf) of the first stage; each further stage doubles it. 64 is the
            full network (11.17 M parameters), 20 the reduced one (1.1 M) of many baselines.
        channels: Number of channels of the images.
        stem: "cifar" is a 3×3 convolution with stride 1; "imagenet" is a 7×7 convolution with
            stride 2 and a max-pool, which reduce the resolution by a factor of 4.
    """

    def __init__(self, width: int = 64, channels: int = 3, stem: Stem = "cifar") -> None:
        super().__init__()
        self.out_features = 8 * width
        self.stage_widths = (width, 2 * width, 4 * width, 8 * width)
        if stem == "cifar":
            self.conv1: nn.Conv2d = FirstConvolution(channels, width, 3, padding=1, bias=False)
            self.pool: nn.Module | None = None
        else:
            self.conv1 = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn1 = BatchNorm(width)
        self.layer1 = _stage(width, width, stride=1)
        self.layer2 = _stage(width, 2 * width, stride=2)
        self.layer3 = _stage(2 * width, 4 * width, stride=2)
        self.layer4 = _stage(4 * width, 8 * width, stride=2)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, 8·width) of images (n, channels, height, width)."""
        return self.stages(images)[-1].mean((2, 3))

    def stages(self, images: Tensor) -> list[Tensor]:
        """Return the feature maps after each of the four stages."""
        x: Twice = self.bn1.twice(self.conv1(images))
        if self.pool is not None:
            pooled = self.pool(x[0])
            x = pooled, pooled
        maps = []
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
            maps.append(x[0])
        return maps


class FirstConvolution(nn.Conv2d):
    """A convolution of images, whose channels are zero-padded in training on a GPU.

    Tensor cores need a multiple of 8 channels. The padding does not change the result.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return the feature maps of images (n, channels, height, width)."""
        if not (self.training and images.is_cuda):
            return super().forward(images)
        padding = (0, 0, 0, 0, 0, -self.in_channels % 8)
        weight = pad(self.weight, padding)
        return conv2d(pad(images, padding), weight, self.bias, self.stride, self.padding)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut, a 1×1 convolution if the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = BatchNorm(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = BatchNorm(channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = Shortcut(channels_in, channels_out, stride)

    def forward(self, x: Twice) -> Twice:
        """Map (n, channels_in, h, w) to (n, channels_out, h/stride, w/stride)."""
        to_convolve, to_add = x
        y = self.bn1(self.conv1(to_convolve))
        return self.bn2.twice(self.conv2(y), self.shortcut(to_add))


class Shortcut(nn.Sequential):
    """A 1×1 convolution and batch norm, without ReLU."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__(
            nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
            BatchNorm(channels_out),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, channels_out, h/stride, w/stride)."""
        convolution, norm = self
        maps: Tensor = norm(convolution(x), activate=False)
        return maps


def _stage(channels_in: int, channels_out: int, stride: int) -> nn.Sequential:
    return nn.Sequential(
        BasicBlock(channels_in, channels_out, stride), BasicBlock(channels_out, channels_out, 1)
    )
