"""Two ways to keep a random sample of a stream: batch-wise and item by item.

Each policy is a function `(memory, images, labels, generator, **fields) -> slots`, called once for
every incoming batch. It first fills free slots in order with the head of the batch. Every
further item draws a number and goes into the slot of that number, if there is one. The returned
slots (n,) say where each item went; `memory.bin` means that it was rejected, or overwritten by a
later item of the same batch.
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
    """Reservoir-B, the update of OnPro's official code and of most of its baselines.

    All items of a batch that find no free slot are accepted with the same probability M/n, n being
    the items seen before them, instead of M/(n+1), M/(n+2), … So it keeps slightly more
    recent items than an exact reservoir, and all of the batch that arrives when it has just filled.
    """
    draws = draw_batch(memory, len(labels), generator)
    return store(memory, draws, images, labels, **fields)


def reservoir_sequential(
    memory: Memory,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
    **fields: Tensor,
) -> Tensor:
    """Reservoir-S, the exact one: after n items each of them is stored with probability M/n."""
    draws = draw_sequential(memory, len(labels), generator)
    return store(memory, draws, images, labels, **fields)


def draw_batch(memory: Memory, arriving: int, generator: torch.Generator) -> Tensor:
    """Numbers for the items that find no free slot, uniform in {0 … n−1}.

    n is the number of items seen once the free slots are filled, the same for all of them.
    """
    stored = min(arriving, memory.free)
    return _below(memory.seen + stored, arriving - stored, generator)


def draw_sequential(memory: Memory, arriving: int, generator: torch.Generator) -> Tensor:
    """Numbers for the items that find no free slot, uniform in {0 … n}.

    n is the number of items seen before the item, one more for each of them.
    """
    stored = min(arriving, memory.free)
    before = torch.arange(stored, arriving, device=memory.device)
    return _below(memory.seen + before + 1, arriving - stored, generator)


def _below(limits: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Whole numbers (count,), each uniform in {0 … limit−1}; limits (count,) or (1,)."""
    # In double precision, because single precision would leave out numbers from 2²⁴ items on.
    uniform = torch.rand(count, dtype=torch.float64, device=limits.device, generator=generator)
    return (uniform * limits).long()


def store(
    memory: Memory, draws: Tensor, images: Tensor, labels: Tensor, **fields: Tensor
) -> Tensor:
    """Fill free slots in order, then put each further item into the slot it drew, if it exists.

    Args:
        memory: The memory to change.
        draws: Whole numbers, one for each item that finds no free slot.
        images: (n, channels, height, width)
        labels: (n,)
        **fields: Every further field of the memory, (n, ...).

    Returns:
        The slots (n,) the items went to, `memory.bin` for those that are not stored.
    """
    arrived = len(labels)
    filled = memory.fill + min(arrived, memory.free)
    in_order = torch.arange(memory.fill, filled, device=memory.device)
    slots = last_wins(torch.cat([in_order, draws.clamp(max=memory.bin)]), memory.bin)
    memory.write(slots, images, labels, **fields)
    memory.advance(arrived)
    return slots


def last_wins(slots: Tensor, unused: int) -> Tensor:
    """Where two items (n,) have one slot, only the last keeps it; the others get `unused`."""
    position = torch.arange(len(slots), device=slots.device)
    last = torch.zeros(unused + 1, dtype=torch.int64, device=slots.device)
    last.scatter_reduce_(0, slots, position, "amax", include_self=True)
    return torch.where(last[slots] == position, slots, unused)
