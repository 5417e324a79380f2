"""Losses that keep a network close to the previous one: terms of OCM and PASS."""

import torch
from torch import Tensor

from onpro.losses.precision import float32


@float32
def known_logits_error(logits: Tensor, previous: Tensor, known: Tensor) -> Tensor:
    """OCM's L_mse, the mean of (o_ik − o′_ik)² over images i and known classes k.

    Args:
        logits: (n, classes) logits o; those of classes that the previous network lacks are ignored.
        previous: (n, previous classes) logits o′ of the previous network.
        known: (previous classes,) bool, which classes the previous network has learnt.

    Returns:
        The scalar loss, 0 if no class is known.
    """
    squares = (logits[:, : len(known)] - previous).square() * known
    return squares.sum() / (len(logits) * known.sum()).clamp(min=1)


@float32
def feature_distance(features: Tensor, old: Tensor) -> Tensor:
    """PASS's ‖f(x) − f_old(x)‖₂, the norm over all images and features, not averaged.

    Args:
        features: (n, dim) features f(x).
        old: (n, dim) features f_old(x) of the previous network.

    Returns:
        The scalar loss.
    """
    distance: Tensor = torch.linalg.vector_norm(features - old)
    return distance
