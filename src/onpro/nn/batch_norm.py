"""Batch norm with residual connection and ReLU."""

import functools
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, relu

from onpro.torch_private import in_function_transform

LOG = logging.getLogger(__name__)


class BatchNorm(nn.BatchNorm2d):
    """Batch norm, residual connection and ReLU: relu(BN(x) + residual).

    One module computes all three, so that a GPU can use fused kernels (`use_fused_kernels`), which
    read and write the feature maps less often than separate operations.
    """

    fused: bool = False
    """Whether to use fused kernels where possible."""
    groups: tuple[int, ...] = ()
    """Sizes of the parts of a batch that are normalised separately (default: the whole batch)."""

    def forward(
        self, x: Tensor, residual: Tensor | None = None, *, activate: bool = True
    ) -> Tensor:
        """Return relu(BN(x) + residual) of feature maps (n, channels, h, w).

        Args:
            x: (n, channels, h, w) feature maps.
            residual: (n, channels, h, w) maps to add, if any.
            activate: Whether to apply the ReLU.
        """
        return self.twice(x, residual, activate=activate)[0]

    def twice(
        self, x: Tensor, residual: Tensor | None = None, *, activate: bool = True
    ) -> tuple[Tensor, Tensor]:
        """Return the result of `forward` twice, for a block's convolution and its shortcut.

        The backward pass of the fused kernels then adds both gradients itself, which saves a pass
        over the maps.
        """
        if self.fused and self._can_fuse(x, residual):
            from onpro.nn.fused_batch_norm import fused_batch_norm

            return fused_batch_norm(self, x, residual, activate=activate, groups=self.groups)
        if self.groups:
            y = torch.cat([self._normalised(part) for part in x.split(self.groups)])
        else:
            y = self._normalised(x)
        if residual is not None:
            y = y + residual
        y = relu(y, inplace=True) if activate else y
        return y, y

    def _normalised(self, x: Tensor) -> Tensor:
        """Return BN(x), with the running statistics if there is a single value per channel.

        Its variance is 0, and torch refuses to normalise it in training mode.
        """
        mean, variance = self.running_mean, self.running_var
        if not self.training or x.numel() > x.shape[1] or mean is None or variance is None:
            return super().forward(x)
        # Copies, because backward needs them and the next batch updates the originals in place.
        return batch_norm(x, mean.clone(), variance.clone(), self.weight, self.bias, eps=self.eps)

    def _can_fuse(self, x: Tensor, residual: Tensor | None) -> bool:
        """Return whether the fused kernels support the maps; they do not support `torch.func`."""
        maps = (x,) if residual is None else (x, residual)
        return (
            self.training
            and min(self.groups or (len(x),)) * x.shape[2] * x.shape[3] > 1
            and not in_function_transform()
            and all(m.is_cuda and m.is_contiguous(memory_format=torch.channels_last) for m in maps)
            and all(m.dtype == x.dtype for m in maps)
        )


@contextmanager
def normalised_apart(module: nn.Module, sizes: Sequence[int]) -> Iterator[None]:
    """Make a module's batch norms treat parts of a batch as consecutive batches.

    Inside, each part is normalised by its own statistics, and the running statistics are updated
    once per part.

    Args:
        module: The module.
        sizes: Numbers of images of the parts, in order.
    """
    norms = [part for part in module.modules() if isinstance(part, BatchNorm)]
    for norm in norms:
        norm.groups = tuple(sizes)
    try:
        yield
    finally:
        for norm in norms:
            norm.groups = ()


@contextmanager
def collecting_statistics(module: nn.Module) -> Iterator[None]:
    """Make the running statistics of a module those of the batches that it is shown inside.

    Batch norms normalise each batch by its own statistics, and end with the mean of all of them.
    """
    norms = [part for part in module.modules() if isinstance(part, BatchNorm)]
    usual = [(norm.training, norm.momentum, norm.fused) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        # A momentum of None is torch's plain mean, which the fused kernels do not have.
        norm.training, norm.momentum, norm.fused = True, None, False
    try:
        yield
    finally:
        for norm, (training, momentum, fused) in zip(norms, usual, strict=True):
            norm.training, norm.momentum, norm.fused = training, momentum, fused


def fused_kernels_exist() -> bool:
    """Return whether Triton is installed, which comes with torch for CUDA on Linux."""
    return find_spec("triton") is not None


@functools.cache
def fused_kernels_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether fused kernels compile, which needs a C compiler, and run on a device.

    Log a warning if they fail on a GPU. Otherwise they are compiled afterwards, for maps of this
    type.
    """
    if device.type != "cuda" or not fused_kernels_exist():
        return False
    try:
        _try_kernels(device, dtype)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        LOG.warning("fused kernels do not work here (%s): training is slower.", reason)
        return False
    return True


def _try_kernels(device: torch.device, dtype: torch.dtype) -> None:
    """Compile all kernels and run one."""
    from onpro.nn.fused_batch_norm import compile_kernels

    compile_kernels(device, dtype)
    norm = BatchNorm(64, device=device)
    use_fused_kernels(norm)
    x = torch.zeros(2, 64, 2, 2, dtype=dtype, device=device)
    norm(x.contiguous(memory_format=torch.channels_last)).sum().item()


def use_fused_kernels(module: nn.Module) -> None:
    """Use fused kernels in all batch norms of a module, in training, where possible."""
    for part in module.modules():
        if isinstance(part, BatchNorm):
            part.fused = True
