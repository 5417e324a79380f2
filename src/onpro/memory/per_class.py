"""A memory that gives every class the same number of slots, fewer as classes appear."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.memory.memory import Replay
from onpro.memory.reservoir import last_wins


class PerClassMemory:
    """CoPE's dynamic memory: each of the classes seen may keep ⌊capacity / classes⌋ images.

    A class fills its slots in order, the newest images taking the place of the oldest if a batch
    brings too many; from then on it is a reservoir of its own. When a class appears, the others
    are cut at random to what they may keep now.

    The slots are a table, a row for each class in order of appearance. Which classes there are and
    how long the rows are is known to the host, how many slots of a row hold an image only to the
    device, so that storing a batch waits for nothing. One row more than there are slots is the
    *bin*, for what is not stored.

    Args:
        capacity: Number of slots.
        image_shape: Channels, height and width of one image.
        device: Where everything is stored.
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
        self.seen = torch.zeros(1, dtype=torch.int64, device=device)
        """(1,): number of images that have arrived."""
        self._arrived = 0  # the same on the host, counted no further than the memory is large
        self._images = torch.zeros((capacity + 1, *image_shape), dtype=dtype, device=device)
        self._labels = torch.zeros(capacity + 1, dtype=torch.int64, device=device)
        self._numbers = torch.zeros(0, dtype=torch.int64, device=device)
        self._stored = torch.zeros(0, dtype=torch.int64, device=device)
        self._seen = torch.zeros(0, dtype=torch.int64, device=device)

    @property
    def images(self) -> Tensor:
        """Copies of the stored images (n, channels, height, width); waits for the device."""
        return self.take(self._filled()).images

    @property
    def labels(self) -> Tensor:
        """Copies of the stored labels (n,); waits for the device."""
        return self.take(self._filled()).labels

    def _filled(self) -> Tensor:
        return self._holds.flatten().nonzero()[:, 0]

    @property
    def quota(self) -> int:
        """Number of images that each class may keep."""
        return self.capacity // len(self.classes) if self.classes else 0

    @property
    def most(self) -> int:
        """The most images that may be stored now; exact until a class has too many."""
        return min(self._arrived, self.quota * len(self.classes))

    @property
    def stored(self) -> Tensor:
        """(classes,): number of images stored of each class, in order of appearance."""
        return self._stored

    @property
    def phase(self) -> Hashable:
        """What of its numbers a training step depends on: equal phases, equal shapes."""
        return tuple(self.classes), self.most

    def update(
        self, images: Tensor, labels: Tensor, classes: Sequence[int], generator: torch.Generator
    ) -> None:
        """Take in a batch.

        Args:
            images: (n, channels, height, width), of the type of the stored pixels.
            labels: (n,)
            classes: The distinct labels, as numbers of the host.
            generator: On the memory's device.
        """
        appearing = [label for label in classes if label not in self.classes]
        if appearing:
            quota = self.capacity // (len(self.classes) + len(appearing))
            turn = self._turns(generator, unless_at_most=quota)
            self._lay_out(range(len(self.classes)), turn, appearing)
        self._arrived = min(self._arrived + len(labels), self.capacity)
        self.seen += len(labels)
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

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Items drawn class by class: a uniformly random class, then one of its items not drawn.

        A class whose items are all drawn is out. Equivalently, a clock rings for each class
        after independent, exponentially distributed times and calls one of its items.

        Returns:
            Slots (min(count, most),), and which of them count, the first ones; the others repeat
            them.
        """
        never = torch.iinfo(torch.int64).max
        waits = torch.empty_like(self._holds, dtype=torch.float).exponential_(generator=generator)
        # Sums of whole numbers do not depend on the order in which a device adds them up.
        rings = (waits.double() * 2**32).long().cumsum(dim=1).where(self._holds, never)
        called = rings.flatten().topk(min(count, self.most), largest=False)
        exists = called.values < never
        slots = self._slots(self._turns(generator)).flatten()[called.indices]
        again = torch.arange(len(slots), device=self.device) % exists.sum().clamp(min=1)
        return slots[again], exists

    def take(self, slots: Tensor) -> Replay:
        """The items in the given slots (n,)."""
        return Replay(self._images.index_select(0, slots), self._labels[slots])

    def remove(self, label: int) -> None:
        """Erase all images of a class, for good; the others may keep more from now on."""
        if label not in self.classes:
            return
        rows = [row for row, other in enumerate(self.classes) if other != label]
        in_order = torch.arange(self.quota, device=self.device).expand(len(self.classes), -1)
        self._lay_out(rows, in_order, [])

    def state_dict(self) -> dict[str, Any]:
        """Copies of the slots in use, and the counters."""
        used = self.quota * len(self.classes)
        return {
            "capacity": self.capacity,
            "classes": list(self.classes),
            "arrived": int(self.seen),
            "images": self._images[:used].clone(),
            "labels": self._labels[:used].clone(),
            "stored": self._stored.clone(),
            "seen": self._seen.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the memory that gave the state."""
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"the state is of a memory of {state['capacity']} images, not of {self.capacity}"
            )
        self._name(state["classes"])
        self.seen.fill_(state["arrived"])
        self._arrived = min(state["arrived"], self.capacity)
        used = len(state["labels"])
        self._images[:used].copy_(state["images"])
        self._labels[:used].copy_(state["labels"])
        self._stored = state["stored"].to(self.device)
        self._seen = state["seen"].to(self.device)
        if not self._is_sound():
            raise ValueError("the state's table is not one of its classes")

    def _is_sound(self) -> bool:
        """Whether the rows are of distinct classes and hold what they say; asks the device."""
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
        """(classes, quota): whether a slot holds an image."""
        return torch.arange(self.quota, device=self.device) < self._stored[:, None]

    def _turns(self, generator: torch.Generator, unless_at_most: int = 0) -> Tensor:
        """(classes, quota): the columns of each row, those that hold an image first, at random.

        Rows that hold at most `unless_at_most` images stay in order.
        """
        column = torch.arange(self.quota, device=self.device)
        chance = torch.rand(self._holds.shape, generator=generator, device=self.device)
        in_order = self._stored[:, None] <= unless_at_most
        key = torch.where(in_order, column / max(1, self.quota), chance)
        return key.where(self._holds, 2.0).argsort(dim=1, stable=True)

    def _slots(self, columns: Tensor) -> Tensor:
        """Slots of columns (classes, n) of each row."""
        rows = torch.arange(len(self.classes), device=self.device)
        return rows[:, None] * self.quota + columns

    def _lay_out(self, rows: Sequence[int], turn: Tensor, appearing: Sequence[int]) -> None:
        """Make a new table: the given rows, of which the first columns in turn stay, and new ones.

        What does not stay is erased.
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
