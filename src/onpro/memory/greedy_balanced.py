"""GDumb's class-balanced memory."""

from collections.abc import Hashable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from onpro.memory.memory import Memory

NOT_STORED = 2**40
"""Arrival number of a class that was never stored: later than any item."""


class GreedyBalancedMemory(Memory):
    """A memory that balances classes greedily, item by item.

    An item of class y is stored if y is new or has fewer items than k = M // (classes ever stored,
    y not counted if new). If the memory is full, it replaces a random item of the largest class; of
    several largest classes, the one stored first.

    The number of stored items depends on their labels, so only the device knows it: `fill` is a
    host–device sync, `update` is not.

    Args:
        capacity: Number of slots M.
        image_shape: Channels, height and width of one image.
        classes: Number of classes; all labels are below it. See `grow`.
        device: Device of the memory.
    """

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        classes: int,
        *,
        device: torch.device | str,
    ) -> None:
        extra = {"arrived": ((), torch.int64)}
        super().__init__(capacity, image_shape, device=device, extra=extra)
        self.first_stored = torch.full((classes,), NOT_STORED, device=device)
        """(classes,): number in the stream of the first item of each class."""

    @property
    def fill(self) -> int:
        """Number of filled slots; a host–device sync."""
        return int(self.filled)

    @fill.setter
    def fill(self, count: int) -> None:
        self.filled.fill_(count)

    def has(self, count: int) -> bool:
        """Return whether at least `count` slots are filled; a host–device sync."""
        return self.fill >= count

    @property
    def phase(self) -> Hashable:
        """Empty: shapes of an update do not depend on what is stored."""
        return ()

    def grow(self, classes: int) -> None:
        """Make room for further classes."""
        added = classes - len(self.first_stored)
        self.first_stored = pad(self.first_stored, (0, added), value=NOT_STORED)

    def remove(self, label: int) -> None:
        """Erase all items of a class, as if it had never been stored."""
        super().remove(label)
        self.first_stored[label] = NOT_STORED

    def update(self, images: Tensor, labels: Tensor, uniform: Tensor) -> None:
        """Store a batch, item by item.

        Args:
            images: (n, channels, height, width).
            labels: (n,), each below the number of classes.
            uniform: (n,) random numbers u in [0, 1). An item that replaces another replaces the one
                at ⌊u·count⌋ among the items of the largest class, oldest first.
        """
        slots, numbers = self._slots(labels, uniform)
        self.write(slots, images, labels, arrived=numbers)
        self.count(len(labels))

    def _slots(self, labels: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
        """Return the slot of each item of a batch, and its number in the stream.

        Items that are not stored, or replaced by a later item of the batch, go to the bin.
        """
        rows = torch.arange(self.capacity + 1, device=self.device)
        numbers = self.arrived + torch.arange(len(labels), device=self.device)
        filled, first_stored = self.filled, self.first_stored
        arrived = self._fields["arrived"].clone()
        stored = rows < filled
        owner = self._labels.masked_fill(~stored, -1)
        counts = torch.zeros_like(first_stored).scatter_add_(0, owner.clamp(min=0), stored.long())
        slots = []
        for label, number, u in zip(
            labels.split(1), numbers.split(1), uniform.split(1), strict=True
        ):
            classes = (first_stored < NOT_STORED).sum().clamp(min=1)
            new = first_stored[label] == NOT_STORED
            wanted = new | (counts[label] < self.capacity // classes)
            evicting = wanted & (filled == self.capacity)

            largest = (counts * NOT_STORED - first_stored).argmax(dim=0, keepdim=True)
            oldest_first = arrived.masked_fill(owner != largest, NOT_STORED)[:-1].argsort()
            evicted = oldest_first[(u * counts[largest]).long()]
            slot = torch.where(evicting, evicted, filled).where(wanted, self.bin)

            counts.index_add_(0, largest, -evicting.long()).index_add_(0, label, wanted.long())
            first_stored.index_copy_(0, label, number.minimum(first_stored[label]))
            filled += wanted & ~evicting
            owner.index_copy_(0, slot, label)
            arrived.index_copy_(0, slot, number)
            slots.append(slot)
        at = torch.cat(slots)
        return torch.where(arrived[at] == numbers, at, self.bin), numbers

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the filled slots, the counters and when classes were first stored."""
        return super().state_dict() | {"first_stored": self.first_stored.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memory from `state_dict`."""
        first = state["first_stored"]
        if (first.shape, first.dtype) != (self.first_stored.shape, self.first_stored.dtype):
            raise ValueError("the state is of a memory of another number of classes")
        super().load_state_dict(state)
        self.first_stored = state["first_stored"].to(self.device)
