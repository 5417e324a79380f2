"""Batch norm in training with residual and ReLU, in as few passes over the maps as there can be.

A training network spends as much time in its batch norms as in its convolutions if each of
normalisation, addition and ReLU reads and writes whole maps. Here the forward pass reads a map
twice (statistics, result) and writes once; the backward pass reads map and gradient twice and
writes once. Maps are channels-last, so they are matrices: a row for each pixel, a column for each
channel. Sums are in float32, in a fixed order: two equal calls give equal bits.

Each pass is two kernels. The first leaves the sums of parts of the rows; in the second every
program adds them up for itself, which is less work than to wait for one that does.

The reference is `BatchNorm.forward` without its fused branch.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

PROGRAMS = 264
"""How many programs share a matrix: two for each processor of a large GPU."""
TILE = 8192
"""Elements a program works on at a time."""
WARPS = 8
WIDEST = 64
"""Most channels of a tile."""


def fused_batch_norm(
    norm: nn.BatchNorm2d, x: Tensor, added: Tensor | None, *, activate: bool
) -> tuple[Tensor, Tensor]:
    """relu(BN(x) + added) of channels-last maps (n, channels, h, w); running statistics move.

    The result comes twice, for two who use it: their gradients are then added on the way.
    """
    results: tuple[Tensor, Tensor] = _FusedBatchNorm.apply(
        x, norm.weight, norm.bias, added, norm, activate
    )
    return results


class _FusedBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        added: Tensor | None,
        norm: nn.BatchNorm2d,
        activate: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        cut = _Cut(x)
        partial = cut.new_sums(x)
        _sum_maps[cut.grid](x, partial, *cut.sizes, num_warps=WARPS)
        mean, scale = x.new_empty((2, x.shape[1]), dtype=torch.float32)
        y = torch.empty_like(x)
        _normalise[cut.grid](
            x,
            added,
            y,
            partial,
            mean,
            scale,
            weight,
            bias,
            norm.running_mean,
            norm.running_var,
            norm.num_batches_tracked,
            norm.eps,
            norm.momentum,
            added is not None,
            activate,
            *cut.sizes,
            num_warps=WARPS,
        )
        masked_by_result = activate and added is not None
        ctx.save_for_backward(x, weight, bias, mean, scale, y if masked_by_result else None)
        ctx.activate, ctx.has_added = activate, added is not None
        return y, y.data

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, scale, y = ctx.saved_tensors
        first, *more = (
            gradient.contiguous(memory_format=torch.channels_last)
            for gradient in outer
            if gradient is not None
        )
        second = more[0] if more else None
        cut = _Cut(x)
        partial = cut.new_sums(x)
        # What the second kernel would have to work out again is written down by the first.
        written = torch.empty_like(x) if y is not None or second is not None else None
        recompute = ctx.activate and y is None
        _sum_gradients[cut.grid](
            x,
            first,
            second,
            y,
            written,
            partial,
            mean,
            scale,
            weight,
            bias,
            second is not None,
            recompute,
            y is not None,
            written is not None,
            *cut.sizes,
            num_warps=WARPS,
        )
        of_x = torch.empty_like(x)
        sums = torch.empty_like(partial[0])
        behind_relu = first if written is None else written
        _gradient_of_maps[cut.grid](
            x,
            behind_relu,
            of_x,
            partial,
            sums,
            mean,
            scale,
            weight,
            bias,
            recompute and written is None,
            *cut.sizes,
            num_warps=WARPS,
        )
        return of_x, sums[1], sums[0], behind_relu if ctx.has_added else None, None, None


class _Cut:
    """How a matrix of maps is divided among programs."""

    def __init__(self, maps: Tensor) -> None:
        n, channels, height, width = maps.shape
        rows = n * height * width
        tile_width = min(WIDEST, triton.next_power_of_2(channels))
        tile_height = TILE // tile_width
        columns = triton.cdiv(channels, tile_width)
        tiles = triton.cdiv(rows, tile_height)
        tiles_per_part = triton.cdiv(tiles, max(1, PROGRAMS // columns))
        self.parts = triton.cdiv(tiles, tiles_per_part)
        self.grid = (self.parts, columns)
        self.sizes = (rows, channels, self.parts, tiles_per_part, tile_height, tile_width)

    def new_sums(self, maps: Tensor) -> Tensor:
        """Room for two sums of each part and channel."""
        return maps.new_empty((self.parts, 2, maps.shape[1]), dtype=torch.float32)


@triton.jit
def _sum_maps(x, partial, rows, channels, parts, tiles, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Sums of x − x₀ and (x − x₀)² over part of the rows, x₀ being the first row.

    Shifted, because a mean far from zero would swallow the variance of plain sums of squares.
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    shift = tl.load(x + c, mask=inside, other=0.0).to(tl.float32)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    squares = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for tile in range(tiles):
        r = (tl.program_id(0) * tiles + tile) * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < rows)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - shift[None, :]
        value = tl.where(mask, value, 0.0)
        total += value
        squares += value * value
    place = partial + tl.program_id(0) * 2 * channels + c
    tl.store(place, tl.sum(total, axis=0), mask=inside)
    tl.store(place + channels, tl.sum(squares, axis=0), mask=inside)


@triton.jit
def _add_up(partial, parts, channels, c, inside, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """Both sums of the columns c over all parts."""
    first = tl.zeros([HEIGHT, WIDTH], tl.float32)
    second = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for start in range(0, parts, HEIGHT):
        p = start + tl.arange(0, HEIGHT)
        mask = (p < parts)[:, None] & inside[None, :]
        place = partial + p[:, None] * 2 * channels + c[None, :]
        first += tl.load(place, mask=mask, other=0.0)
        second += tl.load(place + channels, mask=mask, other=0.0)
    return tl.sum(first, axis=0), tl.sum(second, axis=0)


@triton.jit
def _normalise(
    x,
    added,
    y,
    partial,
    mean,
    scale,
    weight,
    bias,
    running_mean,
    running_var,
    batches,
    eps,
    momentum,
    ADDED: tl.constexpr,
    ACTIVATE: tl.constexpr,
    rows,
    channels,
    parts,
    tiles,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The result y = relu((x − mean)·scale·weight + bias + added), scale = 1/√(variance + ε).

    The first program of a column keeps mean and scale and moves the running statistics.
    """
    part = tl.program_id(0)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    total, squares = _add_up(partial, parts, channels, c, inside, HEIGHT, WIDTH)
    shifted = total / rows
    variance = tl.maximum(squares / rows - shifted * shifted, 0.0)
    centre = tl.load(x + c, mask=inside, other=0.0).to(tl.float32) + shifted
    factor = tl.rsqrt(variance + eps)
    if part == 0:
        tl.store(mean + c, centre, mask=inside)
        tl.store(scale + c, factor, mask=inside)
        before = tl.load(running_mean + c, mask=inside)
        tl.store(running_mean + c, before + momentum * (centre - before), mask=inside)
        before = tl.load(running_var + c, mask=inside)
        unbiased = variance * rows / tl.maximum(rows - 1, 1)
        tl.store(running_var + c, before + momentum * (unbiased - before), mask=inside)
        if tl.program_id(1) == 0:
            tl.store(batches, tl.load(batches) + 1)
    factor *= tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    for tile in range(tiles):
        r = (part * tiles + tile) * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < rows)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        value = centred * factor[None, :] + b[None, :]
        if ADDED:
            value += tl.load(added + at, mask=mask, other=0.0).to(tl.float32)
        if ACTIVATE:
            value = tl.maximum(value, 0.0)
        tl.store(y + at, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def _sum_gradients(
    x,
    gradient,
    other,
    y,
    written,
    partial,
    mean,
    scale,
    weight,
    bias,
    OTHER: tl.constexpr,
    RECOMPUTE: tl.constexpr,
    MASK: tl.constexpr,
    WRITE: tl.constexpr,
    rows,
    channels,
    parts,
    tiles,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Sums of g and g·x̂ over part of the rows, g the gradient behind the ReLU.

    The ReLU was open where the normalised x is above 0 (RECOMPUTE), or where y is (MASK).
    """
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    centre = tl.load(mean + c, mask=inside, other=0.0)
    factor = tl.load(scale + c, mask=inside, other=0.0)
    w = tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    total = tl.zeros([HEIGHT, WIDTH], tl.float32)
    products = tl.zeros([HEIGHT, WIDTH], tl.float32)
    for tile in range(tiles):
        r = (tl.program_id(0) * tiles + tile) * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < rows)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        if OTHER:
            g += tl.load(other + at, mask=mask, other=0.0).to(tl.float32)
        if RECOMPUTE:
            g = tl.where(centred * (factor * w)[None, :] + b[None, :] > 0, g, 0.0)
        if MASK:
            g = tl.where(tl.load(y + at, mask=mask, other=0.0) > 0, g, 0.0)
        if WRITE:
            tl.store(written + at, g.to(written.dtype.element_ty), mask=mask)
        total += g
        products += g * (centred * factor[None, :])
    place = partial + tl.program_id(0) * 2 * channels + c
    tl.store(place, tl.sum(total, axis=0), mask=inside)
    tl.store(place + channels, tl.sum(products, axis=0), mask=inside)


@triton.jit
def _gradient_of_maps(
    x,
    gradient,
    of_x,
    partial,
    sums,
    mean,
    scale,
    weight,
    bias,
    RECOMPUTE: tl.constexpr,
    rows,
    channels,
    parts,
    tiles,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """∂x = weight·scale·(g − mean(g) − x̂·mean(g·x̂)).

    The first program of a column keeps the sums, the gradients of bias and weight.
    """
    part = tl.program_id(0)
    c = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = c < channels
    total, products = _add_up(partial, parts, channels, c, inside, HEIGHT, WIDTH)
    if part == 0:
        tl.store(sums + c, total, mask=inside)
        tl.store(sums + channels + c, products, mask=inside)
    centre = tl.load(mean + c, mask=inside, other=0.0)
    factor = tl.load(scale + c, mask=inside, other=0.0)
    w = tl.load(weight + c, mask=inside, other=0.0)
    b = tl.load(bias + c, mask=inside, other=0.0)
    mean_g = total / rows
    mean_product = products / rows
    for tile in range(tiles):
        r = (part * tiles + tile) * HEIGHT + tl.arange(0, HEIGHT)
        mask = (r < rows)[:, None] & inside[None, :]
        at = r.to(tl.int64)[:, None] * channels + c[None, :]
        centred = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) - centre[None, :]
        g = tl.load(gradient + at, mask=mask, other=0.0).to(tl.float32)
        if RECOMPUTE:
            g = tl.where(centred * (factor * w)[None, :] + b[None, :] > 0, g, 0.0)
        value = g - mean_g[None, :] - centred * (factor * mean_product)[None, :]
        tl.store(of_x + at, (value * (w * factor)[None, :]).to(of_x.dtype.element_ty), mask=mask)
