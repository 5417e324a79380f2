"""How far features have moved, as PASS measures it."""

import torch
from torch import Tensor

from onpro.losses.precision import float32


@float32
def feature_distance(features: Tensor, old: Tensor) -> Tensor:
    """‖f(x) − f_old(x)‖: one norm over all features of all images (n, features), not averaged."""
    distance: Tensor = torch.linalg.vector_norm(features - old)
    return distance


def spread(features: Tensor, labels: Tensor, means: Tensor, counts: Tensor) -> Tensor:
    """The root of the mean over classes of trace(cov_k)/width, cov_k with divisor n_k − 1.

    Args:
        features: (n, width)
        labels: (n,)
        means: (classes, width) of each class.
        counts: (classes,) number of its features; a class of one feature counts 0.
    """
    squares = (features - means[labels]).square().mean(dim=1, keepdim=True)
    biased, _ = class_means(squares, labels, len(means))
    variance = biased[:, 0] * counts / (counts - 1).clamp(min=1)
    return (variance.sum() / (counts > 0).sum().clamp(min=1)).sqrt()
