"""Weighted mixes of two batches."""

from torch import Tensor


def mix(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """(1 − λ)·x + λ·y, exactly x where λ = 0.

    Args:
        x: Images, or anything else with one row an image, (n, …).
        y: Their partners, of the same shape.
        weight: λ of each row, (n,).
    """
    weight = weight.view(-1, *[1] * (x.ndim - 1))
    return (1 - weight) * x + weight * y
