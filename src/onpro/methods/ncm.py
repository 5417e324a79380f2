"""Nearest class mean: an image belongs to the class whose stored images it resembles most."""

from abc import ABC
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.losses.precision import at_least_float32
from onpro.methods.base import Method, S
from onpro.randomness import derive_seed

IMAGES_AT_ONCE = 256


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
    unit = normalize(at_least_float32(features))
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
    unit = normalize(at_least_float32(features))
    squares = unit.square().sum(dim=1, keepdim=True) + means.square().sum(dim=1)
    return 2 * unit @ means.T - squares


class NearestMeanMethod(Method[S], ABC):
    """A method that predicts the nearest class mean of its memory, among the classes seen so far.

    The means are those of the stored images as they are, in eval mode. They are computed when a
    prediction is first asked for and kept until the next step.
    """

    _means: tuple[tuple[int, bool], Tensor] | None = None

    def rate(self, images: Tensor) -> Tensor:
        """Scores (n, classes) of network input: −‖h − μ_k‖², −∞ for classes not seen."""
        seen = torch.tensor(
            sorted(self.progress.seen), dtype=torch.int64, device=self.context.device
        )
        near = nearest_mean_scores(self._features(images), self._mean_directions(seen))
        scores = near.new_full((len(images), self.network.classes), -torch.inf)
        return scores.index_copy_(1, seen, near)

    def forget(self, label: int) -> None:
        """Give a class up."""
        super().forget(label)
        self._means = None

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        super().load_state_dict(state)
        self._means = None

    def _mean_directions(self, seen: Tensor) -> Tensor:
        moment = (self.progress.steps, self.progress.task_open)
        if self._means is None or self._means[0] != moment:
            chunks = [
                self._features(self.prepare(images))
                for images in self.memory.images.split(IMAGES_AT_ONCE)
            ]
            # A generator of its own: a prediction must not move the method's randomness.
            generator = torch.Generator(self.context.device)
            generator.manual_seed(derive_seed(self.context.seed, "nearest class mean"))
            means = class_mean_directions(torch.cat(chunks), self.memory.labels, seen, generator)
            self._means = (moment, means)
        return self._means[1]

    def _features(self, images: Tensor) -> Tensor:
        return self.network.features(images.contiguous(memory_format=self.context.layout))
