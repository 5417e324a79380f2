"""Mixup."""

from torch import Tensor


def mix(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """Return (1 − λ)·x + λ·y, which is exactly x where λ = 0.

    Args:
        x: (n, …) images, or anything else with one row per image.
        y: (n, …) what they are mixed with.
        weight: (n,) λ of each row.
    """
    weight = weight.view(-1, *[1] * (x.ndim - 1))
    return (1 - weight) * x + weight * y
