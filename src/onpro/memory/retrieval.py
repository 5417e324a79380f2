"""Retrieval policies: which stored items are replayed.

Every function returns slots (int64, on the memory's device) for `Memory.take`. Their number is
known without a host–device sync. If the number of matching items depends on the stored labels, a
second tensor says which of the slots are valid; the others are arbitrary filled slots, to be taken
and then ignored.
"""

import torch
from torch import Tensor

from onpro.memory.memory import Memory


def uniform(memory: Memory, count: int, generator: torch.Generator) -> Tensor:
    """Sample items uniformly without replacement; all of them if fewer than `count` are stored.

    Returns:
        (min(count, fill),) slots.
    """
    filling = memory.samples_by_key and memory.has(count) and not memory.has(memory.capacity)
    if not filling:
        return _shuffled(memory, generator)[:count]
    # A number for each slot, so that a captured step can be replayed while more slots are filled.
    keys = torch.rand(
        memory.capacity, dtype=torch.float64, device=memory.device, generator=generator
    )
    return keys.masked_fill(~memory.in_use, 2.0).argsort()[:count]


def where(
    memory: Memory, eligible: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Sample uniformly without replacement among eligible items, such as those of earlier tasks.

    Args:
        memory: The memory.
        eligible: (fill,) bool.
        count: Number of items.
        generator: On the memory's device.

    Returns:
        (min(count, fill),) slots, eligible ones first, and whether each is eligible.
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
    """Sample up to `per_class_count` items of every class without replacement.

    Args:
        memory: The memory.
        per_class_count: Largest number of items of a class.
        num_classes: Number of classes; all labels are below it.
        generator: On the memory's device.
        exclude: (fill,) bool, items to leave out.

    Returns:
        (num_classes · per_class_count,) slots, class by class, and whether each is valid. Both are
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
    """Sample one stored item of each requested class, uniformly with replacement.

    A class without stored items gets an item of another class, because raising an error would need
    a host–device sync: request only classes whose `class_counts` are positive.

    Args:
        memory: The memory, not empty.
        classes: (k,) requested classes, which may repeat.
        generator: On the memory's device.

    Returns:
        (k,) slots.
    """
    if memory.is_empty:
        raise ValueError("an empty memory has no item of any class")
    none = torch.iinfo(torch.int64).max
    ordered, slots = memory.slot_labels.masked_fill(~memory.in_use, none).sort(stable=True)
    first = torch.searchsorted(ordered, classes)
    stored = torch.searchsorted(ordered, classes, right=True) - first
    share = torch.rand(
        classes.shape, dtype=torch.float64, device=classes.device, generator=generator
    )
    return slots[(first + (share * stored).long()).minimum(memory.filled - 1)]


def class_counts(memory: Memory, num_classes: int) -> Tensor:
    """Count the stored items of each class.

    Args:
        memory: The memory.
        num_classes: Number of classes; all labels are below it.

    Returns:
        (num_classes,) int64.
    """
    counts = torch.zeros(num_classes, dtype=torch.int64, device=memory.device)
    return counts.scatter_add_(0, memory.slot_labels, memory.in_use.long())


def _shuffled(memory: Memory, generator: torch.Generator) -> Tensor:
    """Return all filled slots in random order."""
    return torch.randperm(memory.fill, generator=generator, device=memory.device)
