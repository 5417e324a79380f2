"""Classification by the nearest class mean of features."""

import torch
from torch import Tensor
from torch.nn.functional import normalize


def class_mean_directions(
    features: Tensor, labels: Tensor, classes: Tensor, generator: torch.Generator
) -> Tensor:
    """μ_k: the mean of a class's unit features, itself made a unit vector.

    A class without any image gets a random direction: it must compete, and must not crash.

    Args:
        features: (n, width) of the stored images, of any length.
        labels: (n,).
        classes: (k,) the classes that compete; others may occur among the labels.
        generator: source of the random directions, on the features' device.

    Returns:
        (k, width), row i for `classes[i]`.
    """
    width = features.shape[1]
    directions = torch.randn(len(classes), width, generator=generator, device=features.device)
    unit = normalize(features)
    member = (classes[:, None] == labels).to(unit)
    sums = member @ unit
    stored = member.sum(dim=1, keepdim=True)
    return normalize(torch.where(stored > 0, sums / stored.clamp(min=1), directions))


def nearest_mean_scores(features: Tensor, means: Tensor) -> Tensor:
    """−‖h/‖h‖ − μ_k‖², the highest for the nearest mean.

    Args:
        features: (n, width), of any length.
        means: (k, width).

    Returns:
        (n, k)
    """
    unit = normalize(features)
    squares = unit.square().sum(dim=1, keepdim=True) + means.square().sum(dim=1)
    return 2 * unit @ means.T - squares
