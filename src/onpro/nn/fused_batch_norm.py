"""Batch norm in training with residual and ReLU, in as few passes over the maps as there can be.

A training network spends as much time in its batch norms as in its convolutions if each of
normalisation, addition and ReLU reads and writes whole maps. Here the forward pass reads a map
twice (statistics, result) and writes once; the backward pass reads map and gradient twice and
writes once. Maps are channels-last, so they are matrices: a row for each pixel, a column for each
channel. Sums are in float32, in a fixed order: two equal calls give equal bits.

A batch may consist of several groups that are normalised each by its own statistics, as if they
came one after the other. The rows of a group are divided into parts, one for each program. Each
pass is two kernels: the first leaves the sums of each part; in the second every program adds up
those of its group for itself, which is less work than to wait for one that does.

The reference is `BatchNorm.forward` without its fused branch; the kernels are in
`batch_norm_kernels`.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from torch import Tensor, nn

from onpro.nn.batch_norm_kernels import gradient_of_maps, normalise, sum_gradients, sum_maps

PROGRAMS = 528
"""How many programs share a matrix: four for each processor of a large GPU."""
TILE = 2048
"""Elements a program works on at a time: few enough that a processor has registers for four."""
WARPS = 4
STAGES = 4
"""How many tiles of a map are on their way at once."""
WIDEST = 64
"""Most channels of a tile."""


def fused_batch_norm(
    norm: nn.BatchNorm2d,
    x: Tensor,
    added: Tensor | None,
    *,
    activate: bool,
    groups: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    """relu(BN(x) + added) of channels-last maps (n, channels, h, w); running statistics move.

    Args:
        norm: whose parameters and statistics are used.
        x: the maps.
        added: further maps of the same shape, or none.
        activate: whether there is a ReLU.
        groups: numbers of images that are normalised together; none: all of them.

    Returns:
        The result twice, for two users: their gradients are then added on the way.
    """
    results: tuple[Tensor, Tensor] = _FusedBatchNorm.apply(
        x, norm.weight, norm.bias, added, norm, activate, groups or (len(x),)
    )
    return results


def compile_kernels(device: torch.device, dtype: torch.dtype) -> None:
    """Compile what a training step of a residual network needs, all of it at the same time.

    One after the other, when each is first called, takes longer. Later processes find them on the
    disk.

    Args:
        device: for which GPU.
        dtype: type of the maps.
    """
    cut = _Cut((8,), WIDEST, device)
    maps = torch.empty(2, WIDEST, 2, 2, dtype=dtype, device=device)
    vector = torch.empty(WIDEST, device=device)
    count = torch.zeros((), dtype=torch.int64, device=device)
    sums = cut.new_sums()
    rest = *cut.tables, *cut.sizes
    jobs: list[tuple[Any, tuple[Any, ...]]] = [(sum_maps, (maps, sums, *rest))]
    for added, activate in ((None, False), (None, True), (maps, True)):
        numbers = 1e-5, 0.1, 1, added is not None, activate
        jobs.append((normalise, (maps, added, maps, sums, *[vector] * 6, count, *numbers, *rest)))
    for other, recompute, y in (
        (None, True, None),
        (None, False, None),
        (None, False, maps),
        (maps, True, None),
        (maps, False, maps),
    ):
        written = maps if y is not None or other is not None else None
        flags = other is not None, recompute, y is not None, written is not None
        arguments = maps, maps, other, y, written, sums, *[vector] * 4, *flags, *rest
        jobs.append((sum_gradients, arguments))
    for recompute in (False, True):
        arguments = maps, maps, maps, sums, sums, *[vector] * 4, cut.parts, recompute, *rest
        jobs.append((gradient_of_maps, arguments))

    def compile_one(job: tuple[Any, tuple[Any, ...]]) -> None:
        kernel, arguments = job
        with torch.cuda.device(device):
            compiled = kernel.warmup(*arguments, num_warps=WARPS, grid=(1,))
            _ = compiled.run  # what launches it is compiled when it is first asked for

    first, *others = jobs
    compile_one(first)  # and what all of them need
    with ThreadPoolExecutor() as threads:
        list(threads.map(compile_one, others))


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
        groups: tuple[int, ...],
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        _, channels, height, width = x.shape
        cut = _Cut(tuple(n * height * width for n in groups), channels, x.device)
        partial = cut.new_sums()
        sum_maps[cut.grid](x, partial, *cut.tables, *cut.sizes, num_warps=WARPS)
        mean, scale = x.new_empty((2, len(groups), channels), dtype=torch.float32)
        y = torch.empty_like(x)
        normalise[cut.grid](
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
            len(groups),
            added is not None,
            activate,
            *cut.tables,
            *cut.sizes,
            num_warps=WARPS,
        )
        masked_by_result = activate and added is not None
        ctx.save_for_backward(x, weight, bias, mean, scale, y if masked_by_result else None)
        ctx.activate, ctx.has_added, ctx.cut = activate, added is not None, cut
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
        cut: _Cut = ctx.cut
        partial = cut.new_sums()
        # What the second kernel would have to work out again is written down by the first.
        written = torch.empty_like(x) if y is not None or second is not None else None
        recompute = ctx.activate and y is None
        sum_gradients[cut.grid](
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
            *cut.tables,
            *cut.sizes,
            num_warps=WARPS,
        )
        of_x = torch.empty_like(x)
        sums = torch.empty_like(partial[0])
        behind_relu = first if written is None else written
        gradient_of_maps[cut.grid](
            x,
            behind_relu,
            of_x,
            partial,
            sums,
            mean,
            scale,
            weight,
            bias,
            cut.parts,
            recompute and written is None,
            *cut.tables,
            *cut.sizes,
            num_warps=WARPS,
        )
        of_added = behind_relu if ctx.has_added else None
        return of_x, sums[1], sums[0], of_added, None, None, None


class _Cut:
    """How a matrix of maps, its groups of so many rows, is divided among programs."""

    def __init__(self, rows: tuple[int, ...], channels: int, device: torch.device) -> None:
        self.channels, self.device = channels, device
        width = min(WIDEST, triton.next_power_of_2(channels))
        height = TILE // width
        columns = triton.cdiv(channels, width)
        self.tables = _tables(rows, height, max(1, PROGRAMS // columns), device)
        self.parts = len(self.tables[0])
        self.grid = (self.parts, columns)
        self.sizes = (channels, height, width, STAGES)

    def new_sums(self) -> Tensor:
        """Room for two sums of each part and channel."""
        return torch.empty((self.parts, 2, self.channels), device=self.device)


@functools.cache
def _tables(
    rows: tuple[int, ...], height: int, programs: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What is known of each part and of each group, (parts, 4) and (groups, 4), on the device."""
    tiles_per_part = max(1, triton.cdiv(sum(rows), height * programs))
    parts: list[tuple[int, ...]] = []
    groups: list[tuple[int, ...]] = []
    start = 0
    for group, count in enumerate(rows):
        first_part, end = len(parts), start + count
        for first in range(start, end, tiles_per_part * height):
            tiles = triton.cdiv(min(tiles_per_part * height, end - first), height)
            parts.append((first, end, tiles, group))
        groups.append((first_part, len(parts), count, start))
        start = end

    def send(table: list[tuple[int, ...]]) -> Tensor:
        return torch.tensor(table, dtype=torch.int32).to(device)

    return send(parts), send(groups)
