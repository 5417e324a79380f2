"""Small constant tensors that are sent to a device once and then stay there."""

import functools

import torch
from torch import Tensor


@functools.cache
def constant(values: tuple[float, ...], device: torch.device) -> Tensor:
    """The values as float32 on the device, uploaded on the first call only: treat as read-only."""
    with torch.inference_mode(False):  # made inside it, they would be barred from training later
        return torch.tensor(values, dtype=torch.float32, device=device)


def per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One value for each channel, (1, channels, 1, 1), to combine with images."""
    return constant(values, device).view(1, -1, 1, 1)
