"""Small constant tensors, cached on each device."""

import functools

import torch
from torch import Tensor


@functools.cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return the values as a cached float32 tensor, which must not be modified.

    Only the first call copies them to the device, so later ones cause no host–device sync.
    """
    with torch.inference_mode(False):  # else autograd could not use them later
        return torch.tensor(values, dtype=torch.float32, device=device)


def per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Return one value per channel as (1, channels, 1, 1), which broadcasts over images."""
    return constant(values, device).view(1, -1, 1, 1)
