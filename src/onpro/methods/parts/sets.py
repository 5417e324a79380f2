"""Sets of new and stored images whose sizes are known to the device alone, in fixed shapes."""

from typing import Any

import torch
from torch import Tensor

from onpro.losses import NO_CLASS
from onpro.memory import retrieval
from onpro.methods.base import Labelled, Method


def sample_of(method: Method[Any], classes: Tensor, count: int) -> Labelled:
    """Sample stored images of some classes (classes,) bool, see `sample_where`."""
    return sample_where(method, classes[method.memory.labels], count)


def sample_where(method: Method[Any], eligible: Tensor, count: int) -> Labelled:
    """Sample up to `count` random stored images that are eligible, as network input.

    There may be fewer; then others follow, labelled `NO_CLASS`.

    Args:
        method: The method whose memory is sampled.
        eligible: (fill,) bool.
        count: Largest number of images.
    """
    memory, generator = method.memory, method.random["memory"]
    if not count or not len(memory):
        none = method.sample_stored(0)
        return Labelled(method.normalise(none.images), none.labels)
    slots, counted = retrieval.where(memory, eligible, count, generator)
    stored = memory.take(slots)
    return Labelled(method.normalise(stored.images), stored.labels.where(counted, NO_CLASS))


def joined(*parts: Labelled) -> Labelled:
    """Join samples, those with a label first, in their order.

    In place of the others, images with a label are repeated, still labelled `NO_CLASS`. So batch
    norm sees only images that count, and the number of rows does not depend on the labels.
    """
    images = torch.cat([part.images for part in parts])
    labels = torch.cat([part.labels for part in parts])
    counted = labels != NO_CLASS
    order = (~counted).to(torch.uint8).argsort(stable=True)
    rows = order[torch.arange(len(labels), device=labels.device) % counted.sum().clamp(min=1)]
    return Labelled(images.index_select(0, rows), labels[order])


def first_of(samples: Labelled, count: int) -> Labelled:
    """The first `count` rows."""
    return Labelled(samples.images[:count], samples.labels[:count])
