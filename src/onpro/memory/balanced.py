"""A policy that keeps as many images of each class as of any other, as far as there are any."""

import torch
from torch import Tensor

from onpro.memory.memory import FieldSpec, Memory

KEY: FieldSpec = ((), torch.float32)
"""The field `key` that the memory must have: a random number for each item."""


def balanced(
    memory: Memory,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
    **fields: Tensor,
) -> Tensor:
    """Fill free slots in order; then the largest classes give way. See `onpro.memory.reservoir`.

    Each item gets a random key. Its rank is the number of items of its class with smaller keys, and
    the items of the highest ranks are dropped. So every class keeps its smallest keys: a uniform
    sample of all its items that have arrived.
    """
    fields["key"] = torch.rand(len(labels), device=memory.device, generator=generator)
    room = memory.room_for_items(len(labels))
    slots = memory.filled + torch.arange(room, device=memory.device)
    memory.write(slots, images[:room], labels[:room], **_cut(fields, slice(room)))
    memory.advance(room)
    if room == len(labels):
        return slots
    rest = slice(room, None)
    taken = _freed_slots(memory, labels[rest], fields["key"][rest])
    memory.write(taken, images[rest], labels[rest], **_cut(fields, rest))
    memory.count(len(taken))
    kept = (slots[:, None] != taken).all(dim=1)
    return torch.cat([slots.where(kept, memory.bin), taken])


def _cut(fields: dict[str, Tensor], part: slice) -> dict[str, Tensor]:
    return {name: values[part] for name, values in fields.items()}


def _freed_slots(memory: Memory, labels: Tensor, keys: Tensor) -> Tensor:
    """Return slots (n,) of a full memory for arriving items, the bin for those it drops."""
    every_label = torch.cat([memory.slot_labels, labels])
    every_key = torch.cat([memory.fields["key"], keys]).double()
    rank = ranks(every_label, every_key)
    dropped = (rank + every_key).topk(len(labels)).indices.sort().values  # stored ones first
    stays = torch.ones_like(every_label, dtype=torch.bool).index_fill(0, dropped, False)
    stored = stays[memory.capacity :]
    next_freed = (stored.cumsum(0) - 1).clamp(min=0)
    return dropped[next_freed].where(stored, memory.bin)


def ranks(labels: Tensor, keys: Tensor) -> Tensor:
    """Return how many items of its class have a smaller key than each item (n,).

    Args:
        labels: (n,)
        keys: (n,) in [0, 1), double precision.
    """
    order = (labels + keys).argsort()
    by_class = labels[order]
    first = torch.searchsorted(by_class, by_class)
    place = torch.arange(len(labels), device=labels.device) - first
    return torch.empty_like(labels).index_copy(0, order, place)
