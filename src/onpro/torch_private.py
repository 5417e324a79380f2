"""The private names of torch that onpro needs, because no public name does the same.

They may change in any release of torch; `tests/test_torch_private.py` then says which one did.
"""

import torch
from torch import Tensor


def standard_gamma(concentration: Tensor, generator: torch.Generator) -> Tensor:
    """Sample Gamma(concentration, 1), element by element, from the given generator.

    `torch.distributions.Gamma` samples with the same function but only from the global generator.
    """
    return torch._standard_gamma(concentration, generator=generator)


def in_function_transform() -> bool:
    """Return whether a transform of `torch.func`, such as `vmap` or `grad`, is active.

    `torch.autograd.Function.apply` asks the same. `torch.func.debug_unwrap` is public but only
    tells whether a given tensor is wrapped by a transform.
    """
    active: bool = torch._C._are_functorch_transforms_active()
    return active
