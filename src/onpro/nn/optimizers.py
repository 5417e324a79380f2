"""torch's optimizers without the decorators that import torch's compiler.

Those of `torch.optim` import `torch._dynamo` on their first call, so that it can skip them. The
import takes about four seconds per process, and training steps here are not compiled.
"""

from inspect import unwrap
from typing import TypeVar

import torch

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
