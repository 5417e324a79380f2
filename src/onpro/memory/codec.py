"""Lossy compression of images to equally many bytes each, on the device.

After JPEG: luminance and halved colour planes are cut into blocks of 8×8 pixels, whose cosine
transform is rounded, high frequencies more coarsely or not kept at all. There is no entropy coding,
so that every image takes the same space, and a batch is compressed by a few matrix products.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from onpro.errors import UserError

SIDE = 8
"""Height and width of a block."""

DIAGONALS = 2 * SIDE - 1
"""Number of diagonals of a block; the frequencies of one are rounded alike. The first is the mean
of the block."""

LUMA_AND_COLOUR = (
    (0.299, 0.587, 0.114),
    (-0.168736, -0.331264, 0.5),
    (0.5, -0.418688, -0.081312),
)
"""From red, green and blue, as in JPEG."""


class Quantum(NamedTuple):
    """How frequencies are stored: as a multiple of a step, in so many bits."""

    bits: int
    step: float


Table = Sequence[Quantum]
"""How each diagonal is stored, the first ones of a block; the others are not kept."""

MEAN = Quantum(8, 8.0)
"""Of the mean of a block, times the side of the block."""


def four_bits(frequencies: int) -> tuple[Table, Table]:
    """Keep so many diagonals of luminance and half as many of colour, a frequency in four bits.

    The step of the k-th diagonal after the mean is a k-th of that of the first. In luminance that
    first step is about half the standard deviation of its diagonal on images of CIFAR, in colour
    all of it.
    """
    luma, colour = (
        [MEAN, *(Quantum(4, step / k) for k in range(1, kept))]
        for kept, step in ((frequencies, 64.0), (math.ceil(frequencies / 2), 32.0))
    )
    return luma, colour


LUMA, COLOUR, DECAY = 219.0, 52.0, 1.5
"""On images of CIFAR-10, the standard deviation of the k-th diagonal after the mean is about
LUMA / k^DECAY in luminance and COLOUR / k^DECAY in colour; that of the first is lower, 143 and
33."""

RANGE = 3.0
"""Standard deviations on either side of zero that the bits reach."""

LEAST = 0.6
"""A frequency is kept if its standard deviation is at least so many steps."""

COARSER = 2.0
"""How many times the step of colour that of luminance is; an error of colour falls on four
pixels."""


def by_amplitude(image_shape: tuple[int, ...], size: int) -> tuple[Table, Table]:
    """Keep frequencies that are large enough beside a step, in as many bits as they need.

    The step is the smallest with which an image takes at most `size` bytes. An equal step gives the
    least error for a number of bits; only that of colour is smaller.
    """
    for sixteenth in range(-16, 16 * 10):
        step = 2 ** (sixteenth / 16)
        luma = _table(LUMA, step)
        colour = _table(COLOUR, step / COARSER)
        if size_of(image_shape, luma, colour) <= size:
            return luma, colour
    raise UserError(
        f"images of {image_shape[1]}×{image_shape[2]} pixels take at least "
        f"{size_of(image_shape, [MEAN], [MEAN])} bytes, not {size}: give a smaller ratio."
    )


def _table(amplitude: float, step: float) -> Table:
    table = [MEAN]
    for k in range(1, DIAGONALS):
        deviation = amplitude / k**DECAY
        if deviation < LEAST * step:
            break
        enough = (bits for bits in range(2, 8) if (2 ** (bits - 1) - 1) * step >= RANGE * deviation)
        table.append(Quantum(next(enough, 8), step))
    return table


def size_of(image_shape: tuple[int, ...], luma: Table, colour: Table) -> int:
    """Return the number of bytes of an image."""
    rows, columns = _colour_blocks(image_shape)
    bits = 4 * _bits_of_a_block(luma) + 2 * _bits_of_a_block(colour)
    return math.ceil(rows * columns * bits / 8)


def _bits_of_a_block(table: Table) -> int:
    return sum(
        rounding.bits * (min(diagonal, DIAGONALS - 1 - diagonal) + 1)
        for diagonal, rounding in enumerate(table)
    )


def _colour_blocks(image_shape: tuple[int, ...]) -> tuple[int, int]:
    """Return how many blocks of a colour plane cover an image; one has twice the side there."""
    _, height, width = image_shape
    return math.ceil(height / (2 * SIDE)), math.ceil(width / (2 * SIDE))


class BlockCodec:
    """Stores the rounded frequencies of blocks of 8×8 pixels, without host–device sync.

    Args:
        image_shape: Channels, of which there are three, height and width.
        luma: How luminance is stored.
        colour: How both colour planes are stored.
        device: Device of the images.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        luma: Table,
        colour: Table,
        device: torch.device | str,
    ) -> None:
        channels, self.height, self.width = image_shape
        if channels != 3:
            raise UserError(f"only images with 3 channels can be compressed, not with {channels}.")
        rows, columns = _colour_blocks(image_shape)
        self.luma = _Blocks(1, 2 * rows, 2 * columns, luma, device)
        self.colour = _Blocks(2, rows, columns, colour, device)
        mixing = torch.tensor(LUMA_AND_COLOUR, dtype=torch.float64)
        self.mixing = mixing.float().to(device)
        self.unmixing = mixing.inverse().float().to(device)
        self.bits = _Bits([*self.luma.bits, *self.colour.bits], device)
        self.stored_shape = (size_of(image_shape, luma, colour),)

    def encode(self, images: Tensor) -> Tensor:
        """Compress uint8 images (n, 3, height, width) to bytes (n, size)."""
        margin = (0, self.luma.width - self.width, 0, self.luma.height - self.height)
        pixels = pad(images.float(), margin, mode="replicate") - 128
        planes = torch.einsum("pc,nchw->nphw", self.mixing, pixels)
        halved = avg_pool2d(planes[:, 1:], 2)
        return self.bits.pack(
            torch.cat([self.luma.encode(planes[:, :1]), self.colour.encode(halved)], dim=1)
        )

    def decode(self, stored: Tensor) -> Tensor:
        """Return the images (n, 3, height, width), uint8, of compressed ones."""
        luma, colour = self.bits.unpack(stored).tensor_split([len(self.luma.bits)], dim=1)
        planes = torch.cat([self.luma.decode(luma), enlarged(self.colour.decode(colour))], dim=1)
        pixels = torch.einsum("cp,nphw->nchw", self.unmixing, planes) + 128
        whole = pixels.round().clamp(0, 255).to(torch.uint8)
        return whole[:, :, : self.height, : self.width].contiguous()


def enlarged(planes: Tensor) -> Tensor:
    """Double height and width smoothly.

    The mean of four new pixels is the old one, so that compressing an image again changes little.
    """
    for dim in (2, 3):
        size = planes.shape[dim]
        before = planes.narrow(dim, 0, 1), planes.narrow(dim, 0, size - 1)
        after = planes.narrow(dim, 1, size - 1), planes.narrow(dim, size - 1, 1)
        slope = (torch.cat(after, dim) - torch.cat(before, dim)) / 8
        planes = torch.stack([planes - slope, planes + slope], dim + 1).flatten(dim, dim + 1)
    return planes


class _Blocks:
    """The blocks of planes of one size, and what is kept of them."""

    def __init__(
        self, planes: int, rows: int, columns: int, table: Table, device: torch.device | str
    ) -> None:
        self.grid = planes, rows, columns
        self.height, self.width = SIDE * rows, SIDE * columns
        sides = torch.arange(SIDE, dtype=torch.float64)
        basis = (math.pi / SIDE * sides[:, None] * (sides + 0.5)).cos() * math.sqrt(2 / SIDE)
        basis[0] /= math.sqrt(2)
        self.basis = basis.float().to(device)
        diagonal = (sides[:, None] + sides).flatten().long()
        kept = diagonal.argsort(stable=True)[: int((diagonal < len(table)).sum())]
        self.kept = kept.to(device)
        roundings = [table[k] for k in diagonal[kept].tolist()]
        most = torch.tensor([2 ** (rounding.bits - 1) - 1 for rounding in roundings])
        least = -most
        least[0] -= 1  # black
        self.steps = torch.tensor([rounding.step for rounding in roundings]).to(device)
        self.most, self.least = most.float().to(device), least.float().to(device)
        self.bits = [rounding.bits for rounding in roundings] * math.prod(self.grid)

    def encode(self, planes: Tensor) -> Tensor:
        """Return what is kept of planes (n, p, h, w), numbers from 0 on (n, values)."""
        blocks = planes.unflatten(3, (-1, SIDE)).unflatten(2, (-1, SIDE)).transpose(3, 4)
        amplitudes = (self.basis @ blocks.flatten(1, 3) @ self.basis.T).flatten(2)
        multiples = (amplitudes[..., self.kept] / self.steps).round()
        values: Tensor = multiples.clamp(self.least, self.most) - self.least
        return values.flatten(1)

    def decode(self, values: Tensor) -> Tensor:
        """Return planes (n, p, h, w) of what was kept of them."""
        multiples = values.unflatten(1, (-1, len(self.kept))) + self.least
        amplitudes = multiples.new_zeros((*multiples.shape[:2], SIDE * SIDE))
        amplitudes[..., self.kept] = multiples * self.steps
        blocks = self.basis.T @ amplitudes.unflatten(2, (SIDE, SIDE)) @ self.basis
        placed: Tensor = blocks.unflatten(1, self.grid).transpose(3, 4)
        return placed.reshape(len(values), self.grid[0], self.height, self.width)


class _Bits:
    """Packs whole numbers, each of so many bits, into bytes."""

    def __init__(self, bits: Sequence[int], device: torch.device | str) -> None:
        order = sorted(range(len(bits)), key=lambda index: bits[index])
        self.order = torch.tensor(order).to(device)
        self.place = self.order.argsort()
        self.groups = [(width, len(list(same))) for width, same in groupby(sorted(bits))]
        self.digits = torch.arange(8, dtype=torch.int32, device=device)

    def pack(self, values: Tensor) -> Tensor:
        """Return bytes (n, size) of values (n, numbers)."""
        ordered = values[:, self.order].int().split([count for _, count in self.groups], dim=1)
        digits = [
            (part[..., None] >> self.digits[:width] & 1).flatten(1)
            for part, (width, _) in zip(ordered, self.groups, strict=True)
        ]
        together = torch.cat(digits, dim=1)
        full = pad(together, (0, -together.shape[1] % 8)).unflatten(1, (-1, 8))
        packed: Tensor = (full << self.digits).sum(2, dtype=torch.int32).to(torch.uint8)
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """Return the values, float32, of bytes."""
        digits = (packed[..., None].int() >> self.digits & 1).flatten(1)
        sizes = [width * count for width, count in self.groups]
        parts = digits[:, : sum(sizes)].split(sizes, dim=1)
        ordered = [
            (part.unflatten(1, (count, width)) << self.digits[:width]).sum(2, dtype=torch.int32)
            for part, (width, count) in zip(parts, self.groups, strict=True)
        ]
        values: Tensor = torch.cat(ordered, dim=1)[:, self.place].float()
        return values
