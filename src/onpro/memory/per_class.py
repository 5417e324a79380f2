"""CoPE's class-balanced memory."""

import logging
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.memory.memory import Replay
from onpro.memory.reservoir import last_wins

LOG = logging.getLogger(__name__)


class PerClassMemory:
    """A memory in which each class seen so far has ⌊capacity / classes⌋ slots.

    A class fills its slots in order; if a batch overflows them, its newest images replace the
    oldest. A full class is a reservoir of its own. When a class appears, a random subset of the
    others' images that fits their new number of slots is kept.

    The slots form a table with one row per class, in order of appearance. The host knows the
    classes and the length of the rows, and only the device knows how many slots of a row are
    filled, so that storing a batch needs no host–device sync. One extra slot is the *bin*, for
    images that are not stored.

    Args:
        capacity: Number of slots.
        image_shape: Channels, height and width of one image.
        device: Device of the memory.
        dtype: Type of the pixels.
    """

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        *,
        device: torch.device | str,
        dtype: torch.dtype = torch.uint8,
    ) -> None:
        if capacity < 1:
            raise UserError(f"the memory must hold at least 1 image, not {capacity}.")
        self.capacity = capacity
        self.device = torch.device(device)
        self.classes: list[int] = []
        """The class of each row."""
        self.arrived = torch.zeros(1, dtype=torch.int64, device=device)
        """(1,): number of images that have arrived."""
        self._arrived = 0  # the same on the host, up to the capacity
        self._images = torch.zeros((capacity + 1, *image_shape), dtype=dtype, device=device)
        self._labels = torch.zeros(capacity + 1, dtype=torch.int64, device=device)
        self._numbers = torch.zeros(0, dtype=torch.int64, device=device)
        self._stored = torch.zeros(0, dtype=torch.int64, device=device)
        self._seen = torch.zeros(0, dtype=torch.int64, device=device)

    @property
    def images(self) -> Tensor:
        """Copies of the stored images (n, channels, height, width); a host–device sync."""
        return self.take(self._filled()).images

    def image_batches(self, most: int) -> Iterator[Tensor]:
        """The stored images, at most so many at a time; a host–device sync."""
        yield from self.images.split(most)

    @property
    def labels(self) -> Tensor:
        """Copies of the stored labels (n,); a host–device sync."""
        return self.take(self._filled()).labels

    def _filled(self) -> Tensor:
        return self._holds.flatten().nonzero()[:, 0]

    @property
    def quota(self) -> int:
        """Number of slots of each class."""
        return self.capacity // len(self.classes) if self.classes else 0

    @property
    def max_stored(self) -> int:
        """Upper bound of the number of stored images; exact until a class overflows its slots."""
        return min(self._arrived, self.quota * len(self.classes))

    @property
    def seen(self) -> int:
        """Number of images that have arrived; a host–device sync."""
        return int(self.arrived)

    @property
    def stored(self) -> Tensor:
        """(classes,): number of stored images of each class, in order of appearance."""
        return self._stored

    @property
    def phase(self) -> Hashable:
        """Host-side state that determines the shapes of this step and of later ones."""
        return tuple(self.classes), self._arrived

    def update(
        self, images: Tensor, labels: Tensor, classes: Sequence[int], generator: torch.Generator
    ) -> None:
        """Store a batch.

        Args:
            images: (n, channels, height, width), of the type of the stored pixels.
            labels: (n,)
            classes: The distinct labels, on the host.
            generator: On the memory's device.
        """
        appearing = [label for label in classes if label not in self.classes]
        if appearing:
            before, after = len(self.classes), len(self.classes) + len(appearing)
            if before <= self.capacity < after:
                LOG.warning(
                    "all classes have equal shares of the memory: %d images are too few for %d "
                    "classes, and none is kept.",
                    self.capacity,
                    after,
                )
            quota = self.capacity // after
            turn = self._turns(generator, unless_at_most=quota)
            self._lay_out(range(len(self.classes)), turn, appearing)
        self._arrived = min(self._arrived + len(labels), self.capacity)
        self.arrived += len(labels)
        if not self.quota:
            return
        row = (labels[:, None] == self._numbers).to(torch.uint8).argmax(dim=1)
        earlier = (row[:, None] == row[None, :]).tril(-1).sum(dim=1)
        arriving = torch.zeros_like(self._seen).scatter_add_(0, row, torch.ones_like(row))
        self._seen = self._seen + arriving

        share = torch.rand(row.shape, dtype=torch.float64, device=row.device, generator=generator)
        drawn = (share * self._seen[row]).long()
        in_turn = (self._stored[row] + earlier) % self.quota
        position = torch.where(self._stored[row] == self.quota, drawn, in_turn)
        slots = row * self.quota + position
        slots = last_wins(slots.where(position < self.quota, self.capacity), self.capacity)
        self._images.index_copy_(0, slots, images)
        self._labels.index_copy_(0, slots, labels)
        self._stored = (self._stored + arriving).clamp(max=self.quota)

    def sample(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Sample items: repeatedly a uniformly random class, then one of its items, not replaced.

        A class without remaining items takes no further part. Equivalently, each class yields
        its items at the events of its own Poisson process, all of one rate.

        Returns:
            (min(count, max_stored),) slots, valid ones first, and whether each is valid; invalid
            ones repeat valid ones.
        """
        never = torch.iinfo(torch.int64).max
        waits = torch.empty_like(self._holds, dtype=torch.float).exponential_(generator=generator)
        # Sums of integers do not depend on the order of summation.
        rings = (waits.double() * 2**32).long().cumsum(dim=1).where(self._holds, never)
        called = rings.flatten().topk(min(count, self.max_stored), largest=False)
        exists = called.values < never
        slots = self._slots(self._turns(generator)).flatten()[called.indices]
        again = torch.arange(len(slots), device=self.device) % exists.sum().clamp(min=1)
        return slots[again], exists

    def take(self, slots: Tensor) -> Replay:
        """Return the items in the given slots (n,)."""
        return Replay(self._images.index_select(0, slots), self._labels[slots])

    def remove(self, label: int) -> None:
        """Erase all images of a class and give its slots to the others."""
        if label not in self.classes:
            return
        rows = [row for row, other in enumerate(self.classes) if other != label]
        in_order = torch.arange(self.quota, device=self.device).expand(len(self.classes), -1)
        self._lay_out(rows, in_order, [])

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the slots in use, and the counters."""
        used = self.quota * len(self.classes)
        return {
            "capacity": self.capacity,
            "classes": list(self.classes),
            "arrived": self.seen,
            "images": self._images[:used].clone(),
            "labels": self._labels[:used].clone(),
            "stored": self._stored.clone(),
            "seen": self._seen.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memory from `state_dict`."""
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"the state is of a memory of {state['capacity']} images, not of {self.capacity}"
            )
        self._name(state["classes"])
        self.arrived.fill_(state["arrived"])
        self._arrived = min(state["arrived"], self.capacity)
        used = len(state["labels"])
        self._images[:used].copy_(state["images"])
        self._labels[:used].copy_(state["labels"])
        self._stored = state["stored"].to(self.device)
        self._seen = state["seen"].to(self.device)
        if not self._is_sound():
            raise ValueError("the state's table is not one of its classes")

    def _is_sound(self) -> bool:
        """Return whether classes, counts and labels are consistent; a host–device sync."""
        counts, rows = (self._stored, self._seen), len(self.classes)
        if len(set(self.classes)) < rows or any(
            count.shape != (rows,) or count.dtype != torch.int64 for count in counts
        ):
            return False
        labels = self._labels[: rows * self.quota].view(rows, self.quota)
        right = (self._stored >= 0) & (self._stored <= self._seen.clamp(max=self.quota))
        return bool(right.all() & ((labels == self._numbers[:, None]) | ~self._holds).all())

    @property
    def _holds(self) -> Tensor:
        """(classes, quota): whether a slot is filled."""
        return torch.arange(self.quota, device=self.device) < self._stored[:, None]

    def _turns(self, generator: torch.Generator, unless_at_most: int = 0) -> Tensor:
        """Return the columns of each row (classes, quota) in random order, filled ones first.

        Rows with at most `unless_at_most` images stay in order.
        """
        column = torch.arange(self.quota, device=self.device)
        chance = torch.rand(self._holds.shape, generator=generator, device=self.device)
        in_order = self._stored[:, None] <= unless_at_most
        key = torch.where(in_order, column / max(1, self.quota), chance)
        return key.where(self._holds, 2.0).argsort(dim=1, stable=True)

    def _slots(self, columns: Tensor) -> Tensor:
        """Return the slots of columns (classes, n) of each row."""
        rows = torch.arange(len(self.classes), device=self.device)
        return rows[:, None] * self.quota + columns

    def _lay_out(self, rows: Sequence[int], turn: Tensor, appearing: Sequence[int]) -> None:
        """Rebuild the table from the given rows, then add rows for appearing classes.

        Each row keeps its first columns, in the order of `turn`; all other images are erased.
        """
        kept = self._to_device(rows)
        source = self._slots(turn)[kept]
        none = kept.new_zeros(len(appearing))
        self._name([*(self.classes[row] for row in rows), *appearing])
        self._seen = torch.cat([self._seen[kept], none])
        self._stored = torch.cat([self._stored[kept].clamp(max=self.quota), none])

        source = source[:, : self.quota]
        height, width = source.shape
        target = self._slots(torch.arange(width, device=self.device))[:height]
        target = target.where(self._holds[:height, :width], self.capacity)
        for stored in (self._images, self._labels):
            staying = stored.index_select(0, source.flatten())
            stored.zero_().index_copy_(0, target.flatten(), staying)
            stored[self.capacity] = 0

    def _name(self, classes: Sequence[int]) -> None:
        self.classes = list(classes)
        self._numbers = self._to_device(classes)

    def _to_device(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int64).to(self.device, non_blocking=True)
