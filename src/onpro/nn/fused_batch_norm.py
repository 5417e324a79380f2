"""Fused batch norm, residual connection and ReLU in training, with few passes over the maps.

If normalisation, addition and ReLU each read and write whole maps, training spends as much time in
batch norms as in convolutions. Here the forward pass reads a map twice (statistics, result) and
writes it once; the backward pass reads map and gradient twice and writes once. Maps are
channels-last, hence matrices with one row per pixel and one column per channel. Sums are in float32
and in a fixed order, so results are bitwise reproducible.

A batch may consist of several groups, each of which is normalised by its own statistics as if they
were consecutive batches. The rows of a group are divided into parts, one per program. Each pass has
two kernels: the first computes the sums of each part; in the second, every program adds up the sums
of its group, which is cheaper than waiting for one program to do so.

The reference is `BatchNorm.forward` with `fused = False`; the kernels are in `batch_norm_kernels`.
"""

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import triton
from torch import Tensor, nn

from onpro.nn.batch_norm_kernels import input_gradient, normalise, sum_gradients, sum_maps

PROGRAMS = 528
"""Number of programs per matrix: four per multiprocessor of a large GPU."""
TILE = 2048
"""Elements per tile: few enough that a multiprocessor has registers for four programs."""
WARPS = 4
STAGES = 4
"""Number of tiles loaded ahead (software pipelining)."""
MAX_TILE_WIDTH = 64
"""Largest number of channels per tile."""


def fused_batch_norm(
    norm: nn.BatchNorm2d,
    x: Tensor,
    residual: Tensor | None,
    *,
    activate: bool,
    groups: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    """Compute relu(BN(x) + residual) and update the running statistics.

    Args:
        norm: The batch norm whose parameters and statistics are used.
        x: (n, channels, h, w) channels-last maps.
        residual: (n, channels, h, w) channels-last maps to add, if any.
        activate: Whether to apply the ReLU.
        groups: Sizes of the parts of the batch that are normalised separately (default: the whole
            batch).

    Returns:
        The result twice: the backward pass then adds the gradients of both uses itself.
    """
    results: tuple[Tensor, Tensor] = _FusedBatchNorm.apply(
        x, norm.weight, norm.bias, residual, norm, activate, groups or (len(x),)
    )
    return results


def compile_kernels(device: torch.device, dtype: torch.dtype) -> None:
    """Compile the kernels that training a residual network needs, in parallel.

    This is faster than compiling each on its first call. Triton caches them on disk.

    Args:
        device: The GPU.
        dtype: Type of the maps.
    """
    partition = _Partition((8,), MAX_TILE_WIDTH, device)
    maps = torch.empty(2, MAX_TILE_WIDTH, 2, 2, dtype=dtype, device=device)
    vector = torch.empty(MAX_TILE_WIDTH, device=device)
    count = torch.zeros((), dtype=torch.int64, device=device)
    sums = partition.new_sums()
    rest = *partition.tables, *partition.sizes
    jobs: list[tuple[Any, tuple[Any, ...]]] = [(sum_maps, (maps, sums, *rest))]
    for residual, activate in ((None, False), (None, True), (maps, True)):
        numbers = 1e-5, 0.1, 1, residual is not None, activate
        jobs.append(
            (normalise, (maps, residual, maps, sums, *[vector] * 6, count, *numbers, *rest))
        )
    for other, recompute, y in (
        (None, True, None),
        (None, False, None),
        (None, False, maps),
        (maps, True, None),
        (maps, False, maps),
    ):
        stored_g = maps if y is not None or other is not None else None
        flags = other is not None, recompute, y is not None, stored_g is not None
        arguments = maps, maps, other, y, stored_g, sums, *[vector] * 4, *flags, *rest
        jobs.append((sum_gradients, arguments))
    for recompute in (False, True):
        arguments = maps, maps, maps, sums, sums, *[vector] * 4, partition.parts, recompute, *rest
        jobs.append((input_gradient, arguments))

    def compile_one(job: tuple[Any, tuple[Any, ...]]) -> None:
        kernel, arguments = job
        with torch.cuda.device(device):
            compiled = kernel.warmup(*arguments, num_warps=WARPS, grid=(1,))
            _ = compiled.run  # compiles the launcher, on first access

    first, *others = jobs
    compile_one(first)  # alone, because it compiles what all of them share
    with ThreadPoolExecutor() as threads:
        list(threads.map(compile_one, others))


class _FusedBatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        residual: Tensor | None,
        norm: nn.BatchNorm2d,
        activate: bool,
        groups: tuple[int, ...],
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        _, channels, height, width = x.shape
        partition = _Partition(tuple(n * height * width for n in groups), channels, x.device)
        partial = partition.new_sums()
        sum_maps[partition.grid](x, partial, *partition.tables, *partition.sizes, num_warps=WARPS)
        mean, scale = x.new_empty((2, len(groups), channels), dtype=torch.float32)
        y = torch.empty_like(x)
        normalise[partition.grid](
            x,
            residual,
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
            residual is not None,
            activate,
            *partition.tables,
            *partition.sizes,
            num_warps=WARPS,
        )
        masked_by_result = activate and residual is not None
        ctx.save_for_backward(x, weight, bias, mean, scale, y if masked_by_result else None)
        ctx.activate, ctx.has_residual, ctx.partition = activate, residual is not None, partition
        return y, y.data

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, scale, y = ctx.saved_tensors
        first, *more = (
            gradient.contiguous(memory_format=torch.channels_last)
            for gradient in gradients
            if gradient is not None
        )
        second = more[0] if more else None
        partition: _Partition = ctx.partition
        partial = partition.new_sums()
        # g is the gradient by the input of the ReLU. The first kernel stores it unless the second
        # can recompute it from x and a single gradient.
        stored_g = torch.empty_like(x) if y is not None or second is not None else None
        recompute = ctx.activate and y is None
        sum_gradients[partition.grid](
            x,
            first,
            second,
            y,
            stored_g,
            partial,
            mean,
            scale,
            weight,
            bias,
            second is not None,
            recompute,
            y is not None,
            stored_g is not None,
            *partition.tables,
            *partition.sizes,
            num_warps=WARPS,
        )
        grad_x = torch.empty_like(x)
        sums = torch.empty_like(partial[0])
        g = first if stored_g is None else stored_g
        input_gradient[partition.grid](
            x,
            g,
            grad_x,
            partial,
            sums,
            mean,
            scale,
            weight,
            bias,
            partition.parts,
            recompute and stored_g is None,
            *partition.tables,
            *partition.sizes,
            num_warps=WARPS,
        )
        grad_residual = g if ctx.has_residual else None
        return grad_x, sums[1], sums[0], grad_residual, None, None, None


class _Partition:
    """Division of a matrix of maps, given the rows of each group, among programs."""

    def __init__(self, rows: tuple[int, ...], channels: int, device: torch.device) -> None:
        self.channels, self.device = channels, device
        width = min(MAX_TILE_WIDTH, triton.next_power_of_2(channels))
        height = TILE // width
        columns = triton.cdiv(channels, width)
        self.tables = _tables(rows, height, max(1, PROGRAMS // columns), device)
        self.parts = len(self.tables[0])
        self.grid = (self.parts, columns)
        self.sizes = (channels, height, width, STAGES)

    def new_sums(self) -> Tensor:
        """Allocate two sums per part and channel."""
        return torch.empty((self.parts, 2, self.channels), device=self.device)


@functools.cache
def _tables(
    rows: tuple[int, ...], height: int, programs: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Return the columns of `batch_norm_kernels` for parts (parts, 4) and groups (groups, 4)."""
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

    def to_device(table: list[tuple[int, ...]]) -> Tensor:
        return torch.tensor(table, dtype=torch.int32).to(device)

    return to_device(parts), to_device(groups)
