"""Lossy compression of images to equally many bytes each, on the device.

After JPEG: luminance and halved colour planes are cut into blocks of 8×8 pixels, of whose cosine
transform the low frequencies are kept, coarsely rounded. There is no entropy coding, so that every
image takes the same space, and a batch is compressed by a few matrix products.
"""

import math
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad

from onpro.errors import UserError

SIDE = 8
"""Height and width of a block."""

HIGHEST = 2 * SIDE - 1
"""Number of diagonals of a block's frequencies: all of them."""

MEAN_STEP = 8.0
"""Between two values of a block's mean, times the side of the block; they take a byte."""

LUMA_STEP, COLOUR_STEP = 64.0, 32.0
"""Between two values of the lowest frequency, which take half a byte; of the k-th, a k-th of it.
Of the lowest frequencies, about half the standard deviation over CIFAR's images for luminance, and
about all of it for colour."""

LIMIT = 7
"""Largest multiple of a step."""

LUMA_AND_COLOUR = (
    (0.299, 0.587, 0.114),
    (-0.168736, -0.331264, 0.5),
    (0.5, -0.418688, -0.081312),
)
"""From red, green and blue, as in JPEG."""


class Codec(Protocol):
    """How a memory stores images; both directions without host–device sync."""

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of a stored image."""

    def encode(self, images: Tensor) -> Tensor:
        """Convert images (n, channels, height, width) to what is stored (n, ...)."""

    def decode(self, stored: Tensor) -> Tensor:
        """Convert what is stored back to images."""


class BlockCodec:
    """Keeps the low frequencies of blocks of 8×8 pixels.

    Args:
        image_shape: Channels, of which there are three, height and width.
        frequencies: Diagonals of frequencies that are kept of luminance, 1 to 15; of colour, half
            as many.
        device: Device of the images.
    """

    def __init__(
        self, image_shape: tuple[int, ...], frequencies: int, device: torch.device | str
    ) -> None:
        channels, self.height, self.width = image_shape
        if channels != 3:
            raise UserError(f"only images with 3 channels can be compressed, not with {channels}.")
        rows, columns = (math.ceil(side / (2 * SIDE)) for side in (self.height, self.width))
        self.luma = _Blocks(1, 2 * rows, 2 * columns, frequencies, LUMA_STEP, device)
        self.colour = _Blocks(2, rows, columns, math.ceil(frequencies / 2), COLOUR_STEP, device)
        mixing = torch.tensor(LUMA_AND_COLOUR, dtype=torch.float64)
        self.mixing = mixing.float().to(device)
        self.unmixing = mixing.inverse().float().to(device)
        self.means = [self.luma.means, self.colour.means]
        self.waves = [self.luma.waves, self.colour.waves]
        self.stored_shape = (sum(self.means) + math.ceil(sum(self.waves) / 2),)

    def encode(self, images: Tensor) -> Tensor:
        """Compress uint8 images (n, 3, height, width) to bytes (n, size)."""
        margin = (0, self.luma.width - self.width, 0, self.luma.height - self.height)
        pixels = pad(images.float(), margin, mode="replicate") - 128
        planes = torch.einsum("pc,nchw->nphw", self.mixing, pixels)
        luma_means, luma_waves = self.luma.encode(planes[:, :1])
        colour_means, colour_waves = self.colour.encode(avg_pool2d(planes[:, 1:], 2))
        waves = torch.cat([luma_waves, colour_waves], dim=1)
        first, second = pad(waves, (0, waves.shape[1] % 2)).tensor_split(2, dim=1)
        return torch.cat([luma_means, colour_means, 16 * first + second], dim=1).to(torch.uint8)

    def decode(self, stored: Tensor) -> Tensor:
        """Return the images (n, 3, height, width), uint8, of compressed ones."""
        means, pairs = stored.tensor_split([sum(self.means)], dim=1)
        waves = torch.cat([pairs >> 4, pairs & 15], dim=1)[:, : sum(self.waves)]
        luma_means, colour_means = means.split(self.means, dim=1)
        luma_waves, colour_waves = waves.split(self.waves, dim=1)
        colour = self.colour.decode(colour_means, colour_waves)
        enlarged = interpolate(colour, scale_factor=2, mode="bilinear")
        planes = torch.cat([self.luma.decode(luma_means, luma_waves), enlarged], dim=1)
        pixels = torch.einsum("cp,nphw->nchw", self.unmixing, planes) + 128
        whole = pixels.round().clamp(0, 255).to(torch.uint8)
        return whole[:, :, : self.height, : self.width].contiguous()


class _Blocks:
    """The blocks of planes of one size, and the frequencies kept of them."""

    def __init__(
        self,
        planes: int,
        rows: int,
        columns: int,
        frequencies: int,
        step: float,
        device: torch.device | str,
    ) -> None:
        self.grid = planes, rows, columns
        self.height, self.width = SIDE * rows, SIDE * columns
        sides = torch.arange(SIDE, dtype=torch.float64)
        basis = (math.pi / SIDE * sides[:, None] * (sides + 0.5)).cos() * math.sqrt(2 / SIDE)
        basis[0] /= math.sqrt(2)
        self.basis = basis.float().to(device)
        diagonal = (sides[:, None] + sides).flatten()
        by_frequency = diagonal.argsort(stable=True)[: int((diagonal < frequencies).sum())]
        self.kept = by_frequency.to(device)
        steps = step / diagonal[by_frequency].clamp(min=1)
        steps[0] = MEAN_STEP
        self.steps = steps.float().to(device)
        self.means = planes * rows * columns
        self.waves = self.means * (len(by_frequency) - 1)

    def encode(self, planes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rounded means (n, means) and waves (n, waves) of planes (n, p, h, w)."""
        blocks = planes.unflatten(3, (-1, SIDE)).unflatten(2, (-1, SIDE)).transpose(3, 4)
        amplitudes = (self.basis @ blocks.flatten(1, 3) @ self.basis.T).flatten(2)
        multiples = (amplitudes[..., self.kept] / self.steps).round()
        means, waves = multiples[..., 0], multiples[..., 1:].flatten(1)
        return means.clamp(-128, 127) + 128, waves.clamp(-LIMIT, LIMIT) + LIMIT

    def decode(self, means: Tensor, waves: Tensor) -> Tensor:
        """Return planes (n, p, h, w) of rounded means (n, means) and waves (n, waves)."""
        per_block = waves.reshape(*means.shape, len(self.kept) - 1).float() - LIMIT
        multiples = torch.cat([means[..., None].float() - 128, per_block], dim=2)
        amplitudes = multiples.new_zeros((*means.shape, SIDE * SIDE))
        amplitudes[..., self.kept] = multiples * self.steps
        blocks = self.basis.T @ amplitudes.unflatten(2, (SIDE, SIDE)) @ self.basis
        placed: Tensor = blocks.unflatten(1, self.grid).transpose(3, 4)
        return placed.reshape(len(means), self.grid[0], self.height, self.width)
