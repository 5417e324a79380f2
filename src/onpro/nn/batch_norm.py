"""Batch norm together with what follows it in a residual network."""

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
    """relu(BN(x) + added), the framework's batch norm with its neighbours.

    In one place, so that a GPU can compute it in fused kernels, see `use_fused_kernels`: they
    read and write each map once where separate operations do so several times.
    """

    fused: bool = False
    groups: tuple[int, ...] = ()
    """Numbers of images that are normalised together; none: all of a batch."""

    def forward(self, x: Tensor, added: Tensor | None = None, *, activate: bool = True) -> Tensor:
        """Normalised maps (n, channels, h, w), plus `added` if given, through a ReLU if asked."""
        return self.twice(x, added, activate=activate)[0]

    def twice(
        self, x: Tensor, added: Tensor | None = None, *, activate: bool = True
    ) -> tuple[Tensor, Tensor]:
        """The same result under two names, for two users, such as a block and its shortcut.

        Fused kernels add up the gradients of both on the way.
        """
        if self.fused and self._can_fuse(x, added):
            from onpro.nn.fused_batch_norm import fused_batch_norm

            return fused_batch_norm(self, x, added, activate=activate, groups=self.groups)
        if self.groups:
            y = torch.cat([self._normalised(part) for part in x.split(self.groups)])
        else:
            y = self._normalised(x)
        if added is not None:
            y = y + added
        y = relu(y, inplace=True) if activate else y
        return y, y

    def _normalised(self, x: Tensor) -> Tensor:
        """BN(x); of a single value, which has no spread, as in prediction."""
        mean, variance = self.running_mean, self.running_var
        if not self.training or x.numel() > x.shape[1] or mean is None or variance is None:
            return super().forward(x)
        # Copies: the gradient needs them, and the next batch moves the originals.
        return batch_norm(x, mean.clone(), variance.clone(), self.weight, self.bias, eps=self.eps)

    def _can_fuse(self, x: Tensor, added: Tensor | None) -> bool:
        """Whether x is what the kernels are for; per-sample gradients, say, are not."""
        maps = (x,) if added is None else (x, added)
        return (
            self.training
            and min(self.groups or (len(x),)) * x.shape[2] * x.shape[3] > 1
            and not in_function_transform()
            and all(m.is_cuda and m.is_contiguous(memory_format=torch.channels_last) for m in maps)
            and all(m.dtype == x.dtype for m in maps)
        )


@contextmanager
def normalised_apart(module: nn.Module, sizes: Sequence[int]) -> Iterator[None]:
    """Let a module treat parts of a batch as batches that come one after the other.

    Inside, its batch norms normalise each part by its own statistics, and their running statistics
    move once for each.
    """
    norms = [part for part in module.modules() if isinstance(part, BatchNorm)]
    for norm in norms:
        norm.groups = tuple(sizes)
    try:
        yield
    finally:
        for norm in norms:
            norm.groups = ()


def fused_kernels_exist() -> bool:
    """Whether what compiles them is installed: it comes with torch for CUDA on Linux."""
    return find_spec("triton") is not None


@functools.cache
def fused_kernels_work(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether kernels can be compiled for a device and run there: that takes a C compiler too.

    Says so where they should and do not. Afterwards they are compiled, for maps of that type.
    """
    if device.type != "cuda" or not fused_kernels_exist():
        return False
    try:
        _try_kernels(device, dtype)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        LOG.warning("fused kernels do not work here (%s): steps take longer.", reason)
        return False
    return True


def _try_kernels(device: torch.device, dtype: torch.dtype) -> None:
    """Compile all, run one that every run needs."""
    from onpro.nn.fused_batch_norm import compile_kernels

    compile_kernels(device, dtype)
    norm = BatchNorm(64, device=device)
    use_fused_kernels(norm)
    x = torch.zeros(2, 64, 2, 2, dtype=dtype, device=device)
    norm(x.contiguous(memory_format=torch.channels_last)).sum().item()


def use_fused_kernels(module: nn.Module) -> None:
    """Let every batch norm of a module use fused kernels in training, where they apply."""
    for part in module.modules():
        if isinstance(part, BatchNorm):
            part.fused = True
