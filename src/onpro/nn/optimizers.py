"""torch's optimizers without the decorators that import torch's compiler.

Those of `torch.optim` import `torch._dynamo` on their first call, so that it can skip them. The
import takes about four seconds per process, and training steps here are not compiled.
"""

from inspect import unwrap
from typing import TypeVar

import torch
from torch import Tensor

OptimizerClass = TypeVar("OptimizerClass", bound=type[torch.optim.Optimizer])


def _without_compiler(optimizer: OptimizerClass) -> OptimizerClass:
    """Replace the decorated methods of an optimizer class by the functions they wrap."""
    for name in ("add_param_group", "state_dict", "load_state_dict", "zero_grad"):
        setattr(optimizer, name, unwrap(getattr(optimizer, name)))
    # The decorator of `step` also disables gradients.
    optimizer.step = torch.no_grad()(unwrap(optimizer.step))  # type: ignore[method-assign]
    return optimizer


@_without_compiler
class SGD(torch.optim.SGD):
    """`torch.optim.SGD`."""


@_without_compiler
class Adam(torch.optim.Adam):
    """`torch.optim.Adam`."""


@_without_compiler
class AdamW(torch.optim.AdamW):
    """`torch.optim.AdamW`."""


def lay_out_like_parameters(optimizer: torch.optim.Optimizer) -> None:
    """Give an optimizer's averages the memory layout of their parameters.

    A file keeps no layout, and a fused step pairs values by their place in memory.
    """
    for parameter, averages in optimizer.state.items():
        for name, value in averages.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                averages[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
