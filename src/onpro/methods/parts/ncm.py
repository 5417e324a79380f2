"""Nearest class mean: an image belongs to the class whose stored images it resembles most."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.methods.base import EVAL_BATCH, Method, S
from onpro.methods.state import Derived
from onpro.randomness import derive_seed

Features = Callable[[Tensor], Sequence[Tensor]]
"""Features (n, …) of network input, one tensor for each expert."""


class NearestMean(Derived):
    """Predicts the nearest class mean of a method's memory, among the classes seen so far.

    The means are those of the stored images as they are, in eval mode. Of several experts, each
    with features of its own, the mean score counts.
    """

    def __init__(self) -> None:
        self._means: list[Tensor] = []

    def scores(
        self, method: Method[Any], images: Tensor, features: Features | None = None
    ) -> Tensor:
        """Scores (n, classes) of network input: −‖h − μ_k‖², −∞ for classes not seen.

        Args:
            method: The method whose memory has the images of the means.
            images: (n, 3, height, width)
            features: What gives the features (default: the encoder).
        """
        features = features or (lambda images: [method.network.encode(images)])
        classes, device = sorted(method.progress.seen), method.context.device
        seen = torch.tensor(classes, dtype=torch.int64, device=device)
        self.update(method.moment, lambda: self._compute_means(method, seen, features))
        pairs = zip(features(images), self._means, strict=True)
        near = torch.stack([nearest_mean_scores(*pair) for pair in pairs]).mean(dim=0)
        scores = near.new_full((len(images), method.network.classes), -torch.inf)
        return scores.index_copy_(1, seen, near)

    def _compute_means(self, method: Method[Any], seen: Tensor, features: Features) -> None:
        context, memory = method.context, method.memory
        stored = [features(method.normalise(images)) for images in memory.image_batches(EVAL_BATCH)]
        # A generator of its own: a prediction must not change the method's random state.
        generator = torch.Generator(context.device)
        generator.manual_seed(derive_seed(context.seed, "nearest class mean"))
        self._means = [
            class_mean_directions(torch.cat(of_expert), memory.labels, seen, generator)
            for of_expert in zip(*stored, strict=True)
        ]


class PredictsNearestMean(Method[S]):
    """A method that predicts the nearest class mean; its constructor sets `nearest_mean`."""

    predicts_from_memory = True
    nearest_mean: NearestMean

    def eval_scores(self, images: Tensor) -> Tensor:
        """Scores of the nearest class mean."""
        return self.nearest_mean.scores(self, images)


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
