"""Storage of past images on the device."""

import math
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.memory.codec import BlockCodec

MAX_IMAGES = 2**40
"""Largest capacity; torch cannot represent the number of bytes of many more."""

DECODED_AT_ONCE = 2**22
"""Pixels of compressed images that are decoded together: on the way each takes up to 100 bytes."""

FieldSpec = tuple[tuple[int, ...], torch.dtype]


@dataclass(frozen=True, eq=False)
class Replay:
    """Copies of items of a memory."""

    images: Tensor
    """(n, channels, height, width)"""
    labels: Tensor
    """(n,) int64"""
    fields: dict[str, Tensor] = field(default_factory=dict)
    """Further fields by name, each (n, ...)."""


class Memory:
    """A fixed number of slots, each for an image, its label and further fields.

    Slots are filled in order. `fill`, the number of filled slots, is a Python number, so that
    shapes are known without host–device sync. It is counted on the device too, like the number of
    items that have arrived, so that a captured step can be replayed without the host.

    A captured step can be replayed while the memory fills if it only asks `has`, `room_for_items`
    and `filled`, as the reservoir and uniform sampling do: `replayable_fills` are the numbers of
    filled slots for which the host would decide the same. Whoever reads `fill`, or a view of the
    filled slots, decides by the exact number.

    The storage has one more row than slots, the *bin*, at index `capacity`. Policies write rejected
    items there, so that one indexed copy writes a whole batch, without a host–device sync for the
    number of accepted items. The bin is neither visible nor part of the state.

    Args:
        capacity: Number of slots; 0 for a memory that stores nothing.
        image_shape: Channels, height and width of one image.
        device: Device of the memory.
        dtype: Type of the pixels.
        extra: Further fields by name: shape of one item, and type. If one dimension is the number
            of classes, it must be the last, which `grow_field` can widen.
        codec: How images are stored; None: as they are.
    """

    arrived: Tensor
    """(1,): number of items that have arrived."""
    filled: Tensor
    """(1,): number of filled slots, on the device."""

    def __init__(
        self,
        capacity: int,
        image_shape: tuple[int, ...],
        *,
        device: torch.device | str,
        dtype: torch.dtype = torch.uint8,
        extra: Mapping[str, FieldSpec] | None = None,
        codec: BlockCodec | None = None,
    ) -> None:
        if capacity < 0:
            raise UserError(f"the memory cannot hold {capacity} images.")
        rows = capacity + 1
        self.capacity = capacity
        self.image_shape = tuple(image_shape)
        self.device = torch.device(device)
        self.samples_by_key = self.device.type == "cuda"
        """Whether uniform sampling draws a number for every slot, also while the memory fills."""
        self._fill = 0
        self.filled = torch.zeros(1, dtype=torch.int64, device=device)
        self.arrived = torch.zeros(1, dtype=torch.int64, device=device)
        self._arrived = 0  # the same on the host, up to capacity + 1
        self._codec = codec
        stored_shape = self.image_shape if codec is None else codec.stored_shape
        self._images = torch.zeros((rows, *stored_shape), dtype=dtype, device=device)
        self._labels = torch.zeros(rows, dtype=torch.int64, device=device)
        self._fields = {
            name: torch.zeros((rows, *shape), dtype=field_dtype, device=device)
            for name, (shape, field_dtype) in (extra or {}).items()
        }
        self.watch()

    def __len__(self) -> int:
        return self.fill

    @property
    def fill(self) -> int:
        """Number of filled slots."""
        self._require_fill(self._fill, self._fill)
        return self._fill

    @fill.setter
    def fill(self, count: int) -> None:
        self._fill = count
        self.filled.fill_(count)

    @property
    def is_empty(self) -> bool:
        """Whether no slot is filled."""
        return not self.has(1)

    def has(self, count: int) -> bool:
        """Return whether at least `count` slots are filled."""
        enough = self._fill >= count
        self._require_fill(*((count, self.capacity) if enough else (0, count - 1)))
        return enough

    def room_for_items(self, arriving: int) -> int:
        """Return how many of the arriving items find a free slot."""
        free = self.capacity - self._fill
        if not free:
            self._require_fill(self.capacity, self.capacity)
        elif free >= arriving:
            self._require_fill(0, self.capacity - arriving)
        else:
            self._require_fill(self._fill, self._fill)
        return min(arriving, free)

    def watch(self) -> None:
        """Start to note for which numbers of filled slots the host would decide the same."""
        self._replayable, self._added = range(self.capacity + 1), 0

    @property
    def replayable_fills(self) -> range:
        """Numbers of filled slots at the last `watch` with which all would have gone the same."""
        return self._replayable

    def _require_fill(self, lowest: int, highest: int) -> None:
        """Note that a decision holds for these numbers of slots filled now."""
        start = max(self._replayable.start, lowest - self._added)
        self._replayable = range(start, min(self._replayable.stop, highest - self._added + 1))

    @property
    def counters(self) -> tuple[int, int]:
        """The numbers of filled slots and of arrived items on the host, the latter capped."""
        return self._fill, self._arrived

    @counters.setter
    def counters(self, counts: tuple[int, int]) -> None:
        self._fill, arrived = counts
        self._arrived = min(arrived, self.capacity + 1)

    @property
    def bin(self) -> int:
        """Index of the bin: the slot of items that are not stored."""
        return self.capacity

    @property
    def free(self) -> int:
        """Number of free slots."""
        return self.capacity - self.fill

    @property
    def images(self) -> Tensor:
        """The stored images (fill, channels, height, width), a view unless they are encoded."""
        return self._decoded(self._images[: self.fill])

    def image_batches(self, most: int) -> Iterator[Tensor]:
        """The stored images in batches of nearly equal size, at most so many at a time."""
        count = max(1, math.ceil(self.fill / most))
        for part in self._images[: self.fill].tensor_split(count):
            yield self._decoded(part)

    @property
    def labels(self) -> Tensor:
        """The stored labels (fill,), a view."""
        return self._labels[: self.fill]

    @property
    def fields(self) -> dict[str, Tensor]:
        """The further fields (fill, ...) by name, views."""
        return {name: stored[: self.fill] for name, stored in self._fields.items()}

    def take(self, slots: Tensor) -> Replay:
        """Return the items in the given slots (n,), all of them filled."""
        return Replay(
            images=self._decoded(self._images.index_select(0, slots)),
            labels=self._labels.index_select(0, slots),
            fields={name: stored.index_select(0, slots) for name, stored in self._fields.items()},
        )

    def _decoded(self, stored: Tensor) -> Tensor:
        if self._codec is None:
            return stored
        at_once = max(1, DECODED_AT_ONCE // math.prod(self.image_shape[1:]))
        return torch.cat([self._codec.decode(part) for part in stored.split(at_once)])

    def write(self, slots: Tensor, images: Tensor, labels: Tensor, **fields: Tensor) -> None:
        """Write items to slots, without changing the counters.

        Args:
            slots: (n,) int64. The bin may occur any number of times, any other slot once.
            images: (n, channels, height, width), of the type of the stored pixels.
            labels: (n,) int64.
            **fields: Every further field of the memory, (n, ...); stored without its gradient.
        """
        if images.dtype != self._images.dtype:
            raise ValueError(f"the memory stores {self._images.dtype} pixels, not {images.dtype}")
        if fields.keys() != self._fields.keys():
            raise ValueError(
                f"the memory has the fields {sorted(self._fields)}, not {sorted(fields)}"
            )
        encoded = images if self._codec is None else self._codec.encode(images)
        self._images.index_copy_(0, slots, encoded.detach())
        self._labels.index_copy_(0, slots, labels)
        for name, values in fields.items():
            stored = self._fields[name]
            stored.index_copy_(0, slots, values.detach().to(stored.dtype))

    def advance(self, arrived: int) -> None:
        """Count items that arrived and were first written to the free slots in order."""
        added = self.room_for_items(arrived)
        if added:
            self._fill += added
            self._added += added
            self.filled += added
        self.count(arrived)

    def count(self, arrived: int) -> None:
        """Count items that arrived, without changing `fill`."""
        self._arrived = min(self._arrived + arrived, self.capacity + 1)
        self.arrived += arrived

    @property
    def seen(self) -> int:
        """Number of items that have arrived; a host–device sync."""
        return int(self.arrived)

    @property
    def overflowed(self) -> bool:
        """Whether more items have arrived than there are slots."""
        return self._arrived > self.capacity

    @property
    def phase(self) -> Hashable:
        """Host-side state that determines the operations of a step, apart from the fill."""
        return self.overflowed

    @property
    def in_use(self) -> Tensor:
        """(capacity,): whether each slot is filled."""
        return torch.arange(self.capacity, device=self.device) < self.filled

    @property
    def slot_labels(self) -> Tensor:
        """The labels in all slots (capacity,), a view; those of free slots are arbitrary."""
        return self._labels[: self.capacity]

    def remove(self, label: int) -> None:
        """Erase all items of a class; the others move to the first slots in their order.

        The next items to arrive fill the freed slots, whatever the policy. `seen` still counts the
        erased items. A host–device sync.
        """
        kept = (self.labels != label).nonzero()[:, 0]
        self.fill = len(kept)
        for stored in (self._images, self._labels, *self._fields.values()):
            stored[: self.fill] = stored[kept]
            stored[self.fill :] = 0  # the bin too, which holds a rejected item

    def shrink(self, capacity: int) -> None:
        """Become an empty memory of fewer slots; one that has no more is left as it is."""
        if not 0 <= capacity < self.capacity:
            return
        self.capacity = capacity
        rows = capacity + 1
        self._images = torch.zeros_like(self._images[:rows])
        self._labels = torch.zeros_like(self._labels[:rows])
        self._fields = {
            name: torch.zeros_like(stored[:rows]) for name, stored in self._fields.items()
        }
        self.fill = self._arrived = 0
        self.arrived.zero_()
        self.watch()

    def grow_field(self, name: str, width: int) -> None:
        """Widen the last dimension of a field with zeros, for new classes.

        Args:
            name: Name of the field.
            width: The new size of its last dimension.
        """
        old = self._fields[name]
        if old.ndim < 2 or width < old.shape[-1]:
            raise ValueError(
                f"the field '{name}' of shape {tuple(old.shape[1:])} cannot be {width} wide"
            )
        grown = old.new_zeros((*old.shape[:-1], width))
        grown[..., : old.shape[-1]] = old
        self._fields[name] = grown

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the filled slots, and the counters."""
        return {
            "capacity": self.capacity,
            "seen": self.seen,
            "images": self._images[: self.fill].clone(),
            "labels": self.labels.clone(),
            "fields": {name: stored.clone() for name, stored in self.fields.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the memory from `state_dict`; fields are widened to those of the state."""
        images, labels, fields = state["images"], state["labels"], state["fields"]
        if state["capacity"] != self.capacity:
            raise ValueError(
                f"the state is of a memory of {state['capacity']} images, not of {self.capacity}"
            )
        if (images.shape[1:], images.dtype) != (self._images.shape[1:], self._images.dtype):
            raise ValueError(
                f"the state holds {images.dtype} images of shape {tuple(images.shape[1:])}, "
                f"the memory {self._images.dtype} images of shape {tuple(self._images.shape[1:])}"
            )
        if fields.keys() != self._fields.keys():
            raise ValueError(
                f"the state has the fields {sorted(fields)}, the memory {sorted(self._fields)}"
            )
        for name, values in fields.items():
            stored = self._fields[name]
            if values.shape[1:-1] != stored.shape[1:-1] or values.ndim != stored.ndim:
                raise ValueError(
                    f"the field '{name}' of the state has the shape {tuple(values.shape[1:])}, "
                    f"that of the memory {tuple(stored.shape[1:])}"
                )
        self.fill = len(labels)
        self.arrived.fill_(state["seen"])
        self._arrived = min(state["seen"], self.capacity + 1)
        self._images[: self.fill].copy_(images)
        self.labels.copy_(labels)
        for name, values in fields.items():
            if values.shape[1:] != self._fields[name].shape[1:]:
                self._fields[name] = self._fields[name].new_zeros(
                    (self.capacity + 1, *values.shape[1:])
                )
            self.fields[name].copy_(values)


@contextmanager
def room_for(images: int, device: torch.device) -> Iterator[None]:
    """Raise UserError if a memory created inside has no slot or does not fit on the device."""
    if images < 1:
        raise UserError(f"the memory must hold at least 1 image, not {images}.")
    too_large = f"a memory of {images} images does not fit on {device}: give a smaller one."
    if images > MAX_IMAGES:
        raise UserError(too_large)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise UserError(too_large) from error


def out_of_memory(error: Exception) -> bool:
    """Return whether an error means out of memory; on a CPU, torch has no own type for it."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError)
        and any(sign in str(error) for sign in ("DefaultCPUAllocator", "Storage size calculation"))
    )
