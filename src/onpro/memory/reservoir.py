"""Reservoir sampling of a stream: batch-wise, and item by item.

Each policy is a function `(memory, images, labels, generator, **fields) -> slots`, called once per
incoming batch. It first fills free slots in order. For every further item it samples a number and
stores the item in the slot of that number, if there is one. The returned slots (n,) say where each
item is stored; `memory.bin` means that it is rejected, or overwritten by a later item of the same
batch.
"""

import torch
from torch import Tensor

from onpro.memory.memory import Memory


def reservoir_batch(
    memory: Memory,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
    **fields: Tensor,
) -> Tensor:
    """Update by Reservoir-B, as OnPro's official code and most of its baselines.

    All items of a batch beyond the free slots are accepted with the same probability M/n, where n
    is the number of items seen before them, instead of M/(n+1), M/(n+2), … So it stores slightly
    more recent items than an exact reservoir, and accepts the whole first batch after the memory is
    full.
    """
    sampled = sample_slots_batch(memory, len(labels), generator)
    return store(memory, sampled, images, labels, **fields)


def reservoir_sequential(
    memory: Memory,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
    **fields: Tensor,
) -> Tensor:
    """Update by Reservoir-S, the exact one: each of n items is stored with probability M/n."""
    sampled = sample_slots_sequential(memory, len(labels), generator)
    return store(memory, sampled, images, labels, **fields)


def sample_slots_batch(memory: Memory, arriving: int, generator: torch.Generator) -> Tensor:
    """Sample numbers for the items beyond the free slots, uniform in {0 … n−1}.

    n is the number of items seen once the free slots are filled, the same for all items.
    """
    stored = memory.room_for_items(arriving)
    return _below(memory.arrived + stored, arriving - stored, generator)


def sample_slots_sequential(memory: Memory, arriving: int, generator: torch.Generator) -> Tensor:
    """Sample numbers for the items beyond the free slots, uniform in {0 … n}.

    n is the number of items seen before the item.
    """
    stored = memory.room_for_items(arriving)
    before = torch.arange(stored, arriving, device=memory.device)
    return _below(memory.arrived + before + 1, arriving - stored, generator)


def _below(limits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Sample integers (count,), uniform in {0 … limit−1}; limits are (count,) or (1,)."""
    # In double precision, because single precision skips integers above 2²⁴.
    uniform = torch.rand(count, dtype=torch.float64, device=limits.device, generator=generator)
    return (uniform * limits).long()


def store(
    memory: Memory, sampled: Tensor, images: Tensor, labels: Tensor, **fields: Tensor
) -> Tensor:
    """Fill free slots in order, then store each further item in the slot of its number, if any.

    Args:
        memory: The memory to change.
        sampled: (k,) numbers sampled for the k items beyond the free slots.
        images: (n, channels, height, width)
        labels: (n,)
        **fields: (n, ...) all further fields of the memory.

    Returns:
        (n,) slots of the items, `memory.bin` for those that are not stored.
    """
    arrived = len(labels)
    in_order = memory.filled + torch.arange(memory.room_for_items(arrived), device=memory.device)
    slots = last_wins(torch.cat([in_order, sampled.clamp(max=memory.bin)]), memory.bin)
    memory.write(slots, images, labels, **fields)
    memory.advance(arrived)
    return slots


def last_wins(slots: Tensor, unused: int) -> Tensor:
    """If several items have the same slot (n,), keep it for the last; the others get `unused`."""
    position = torch.arange(len(slots), device=slots.device)
    last = torch.zeros(unused + 1, dtype=torch.int64, device=slots.device)
    last.scatter_reduce_(0, slots, position, "amax", include_self=True)
    return torch.where(last[slots] == position, slots, unused)
