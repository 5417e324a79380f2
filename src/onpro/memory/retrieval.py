"""Which stored items are replayed.

Every function answers with slots (int64, on the memory's device), to be given to `Memory.take`. How
many they are is known without asking the device. Where it depends on the stored labels how many
items there really are, a second tensor says which of the slots count; the others are
some filled slots, so that they can be taken too, and be ignored afterwards.
"""

import torch
from torch import Tensor

from onpro.memory.memory import Memory


def uniform(memory: Memory, count: int, generator: torch.Generator) -> Tensor:
    """Distinct stored items, each equally likely; everything in random order if fewer are stored.

    Returns:
        (min(count, fill),)
    """
    return _shuffled(memory, generator)[:count]


def where(
    memory: Memory, eligible: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Distinct items among the eligible ones, such as those of earlier tasks, each equally likely.

    Args:
        memory: The memory.
        eligible: (fill,) bool.
        count: How many to draw.
        generator: On the memory's device.

    Returns:
        Slots (min(count, fill),), and which of them are eligible: the first ones.
    """
    shuffled = _shuffled(memory, generator)
    eligible_first = (~eligible[shuffled]).to(torch.uint8).argsort(stable=True)
    slots = shuffled[eligible_first[:count]]
    return slots, eligible[slots]


def per_class(
    memory: Memory,
    per_class_count: int,
    num_classes: int,
    generator: torch.Generator,
    exclude: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """At most so many distinct random items of every class.

    Args:
        memory: The memory.
        per_class_count: How many items of a class at most.
        num_classes: All labels lie below it.
        generator: On the memory's device.
        exclude: (fill,) bool, items not to be drawn.

    Returns:
        Slots (num_classes · per_class_count,), class after class, and which of them count. Both are
        empty if the memory is.
    """
    labels = memory.labels if exclude is None else memory.labels.masked_fill(exclude, num_classes)
    shuffled = _shuffled(memory, generator)
    ordered, order = labels[shuffled].sort(stable=True)
    bounds = torch.searchsorted(ordered, torch.arange(num_classes + 1, device=memory.device))
    wanted = bounds[:-1, None] + torch.arange(per_class_count, device=memory.device)
    valid = (wanted < bounds[1:, None]).flatten()
    if memory.fill == 0:
        return shuffled, valid[:0]
    return shuffled[order[wanted.clamp(max=memory.fill - 1).flatten()]], valid


def of_classes(memory: Memory, classes: Tensor, generator: torch.Generator) -> Tensor:
    """For each requested class (k,) one of its stored items, each equally likely, with replacement.

    A class of which nothing is stored gets some item of another class, because to find that out
    would mean asking the device: request only classes that `class_counts` knows.

    Returns:
        (k,)
    """
    if memory.fill == 0:
        raise ValueError("an empty memory has no item of any class")
    ordered, slots = memory.labels.sort(stable=True)
    first = torch.searchsorted(ordered, classes)
    stored = torch.searchsorted(ordered, classes, right=True) - first
    share = torch.rand(
        classes.shape, dtype=torch.float64, device=classes.device, generator=generator
    )
    return slots[(first + (share * stored).long()).clamp(max=memory.fill - 1)]


def class_counts(memory: Memory, num_classes: int) -> Tensor:
    """How many items of each class are stored.

    Returns:
        (num_classes,) int64; all labels lie below `num_classes`.
    """
    counts = torch.zeros(num_classes, dtype=torch.int64, device=memory.device)
    return counts.scatter_add_(0, memory.labels, torch.ones_like(memory.labels))


def _shuffled(memory: Memory, generator: torch.Generator) -> Tensor:
    """All filled slots in random order."""
    return torch.randperm(memory.fill, generator=generator, device=memory.device)
