"""ResNet-18 for small and large images."""

from math import ceil
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, pad

from onpro.nn.batch_norm import BatchNorm
from onpro.nn.encoder import Encoder, mean_over_positions
from onpro.torch_private import in_function_transform

HALF = (torch.float16, torch.bfloat16)

Stem = Literal["cifar", "imagenet"]
Pool = Literal["global", "4x4"]

Twice = tuple[Tensor, Tensor]
"""A feature map twice, for a block's convolution and its shortcut; see `BatchNorm.twice`."""


class ResNet18(Encoder):
    """Four stages of two basic blocks and an average pool.

    Args:
        image_shape: Channels, height and width of the images.
        width: Number of channels (nf) of the first stage; each further stage doubles it. 64 is the
            full network (11.17 M parameters), 20 the reduced one (1.1 M) of many baselines.
        stem: "cifar" is a 3×3 convolution with stride 1; "imagenet" is a 7×7 convolution with
            stride 2 and a max-pool, which reduce the resolution by a factor of 4.
        pool: "global" takes the mean of the last maps, as the official code does; "4x4" the means
            of their squares of 4×4 pixels, each a feature of its own. With CIFAR's stem they differ
            if images have more than 32 pixels a side.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        width: int = 64,
        stem: Stem = "cifar",
        pool: Pool = "global",
    ) -> None:
        super().__init__()
        channels, *sides = image_shape
        rows, columns = (ceil(side / (8 if stem == "cifar" else 32)) for side in sides)
        self.square = min(rows, 4), min(columns, 4)
        self.is_global = pool == "global" or self.square == (rows, columns)
        squares = 1 if self.is_global else (rows // self.square[0]) * (columns // self.square[1])
        self.out_features = 8 * width * squares
        if squares == 1:  # else there are more features than maps
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
        """Return features (n, out_features) of images (n, channels, height, width)."""
        maps = self.stages(images)[-1]
        if self.is_global:
            return mean_over_positions(maps)
        return avg_pool2d(maps, self.square).flatten(1)

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

    Tensor cores need a multiple of 8 channels, and in half precision cuDNN computes the gradient
    by the weight faster with 32. Forward and backward pass of 2,560 images of 32×32 in bf16 (H200):
    1.66 ms with 3 channels, 1.38 ms with 8, 0.92 ms with 32, 1.00 ms with 64. The larger input
    adds 2 % to the memory of a training step. The padding does not change the result.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Return the feature maps of images (n, channels, height, width)."""
        if not (self.training and images.is_cuda):
            return super().forward(images)
        if torch.is_autocast_enabled("cuda"):
            images = images.to(torch.get_autocast_dtype("cuda"))  # before they grow
        multiple = 32 if images.dtype in HALF else 8
        padding = (0, 0, 0, 0, 0, -self.in_channels % multiple)
        weight = pad(self.weight, padding)
        return conv2d(pad(images, padding), weight, self.bias, self.stride, self.padding)


class ShortcutConvolution(nn.Conv2d):
    """A 1×1 convolution with a stride, which copies the pixels it needs in training on a GPU.

    In half precision, cuDNN converts the memory layout of maps of 64 channels and back: the forward
    pass of 2,560 maps of 32×32 to 128 channels takes 0.87 ms in bf16 (H200). Its backward pass
    (0.33 ms) and both passes of the network's other shortcuts (forward 0.05 and 0.04 ms) do without
    and stay as they are.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map (n, channels_in, h, w) to (n, channels_out, h/stride, w/stride)."""
        slow = self.training and x.is_cuda and x.dtype in HALF and self.in_channels == 64
        if not slow or in_function_transform():
            return super().forward(x)
        maps: Tensor = Strided1x1.apply(x, self.weight.to(x.dtype), self.stride)
        return maps


class Strided1x1(torch.autograd.Function):
    """A strided 1×1 convolution, whose forward pass has stride 1 on a copy of the needed pixels.

    The backward pass is that of the strided convolution: autograd would compute the gradient of the
    copy and then fill a whole map with it (1.74 ms for both passes instead of 1.15 ms).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: tuple[int, int]) -> Tensor:
        """Convolve maps (n, channels_in, h, w), a weight (channels_out, channels_in, 1, 1)."""
        ctx.save_for_backward(x, weight)
        ctx.stride = stride
        needed = x[:, :, :: stride[0], :: stride[1]]
        return conv2d(needed.contiguous(memory_format=torch.channels_last), weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """Return the gradients by the maps and the weight."""
        wanted = [*ctx.needs_input_grad[:2], False]
        options = ctx.stride, [0, 0], [1, 1], False, [0, 0], 1
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            *gradients, *ctx.saved_tensors, None, *options, wanted
        )
        return grad_x, grad_weight, None


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
            ShortcutConvolution(channels_in, channels_out, 1, stride=stride, bias=False),
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
