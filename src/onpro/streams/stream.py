"""Batches, and the protocol of streams of tasks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from onpro.data.imageset import Split

State = dict[str, Any]
"""A state of plain values that JSON can represent."""


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """Images that arrive together, on the device, with their labels."""

    images: Tensor
    """uint8 (n, 3, height, width)."""
    labels: Tensor
    """int64 (n,)."""
    task: int | None
    """Index of the task, from 0; None if task boundaries are not announced."""
    classes: tuple[int, ...]
    """The distinct labels, sorted, on the host: reading them needs no host–device sync."""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError("images of a batch must have the shape (n, 3, height, width)")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError("labels of a batch must be int64, one for each image")

    def __len__(self) -> int:
        return len(self.labels)


class Benchmark(Protocol):
    """Batches in a fixed order, each seen once, of tasks with a test set for each.

    It can be resumed at any position.
    """

    @property
    def position(self) -> int:
        """Number of batches yielded so far."""

    def __iter__(self) -> Iterator[Batch]:
        """Yield the remaining batches; each one advances the position."""

    def __len__(self) -> int:
        """Number of batches of the whole stream."""

    def state_dict(self) -> State:
        """Return the position and what identifies the stream."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved position; raise ValueError if the state is of another stream."""

    @property
    def num_classes(self) -> int:
        """Number of classes of the whole stream."""

    @property
    def num_tasks(self) -> int:
        """Number of tasks."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is an index into this tuple."""

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """Labels of each task."""

    @property
    def steps_per_task(self) -> tuple[int, ...]:
        """Number of batches of each task."""

    @property
    def num_images(self) -> int:
        """Number of training images of the whole stream."""

    @property
    def announces_tasks(self) -> bool:
        """Whether batches say which task they belong to."""

    @property
    def evaluation_steps(self) -> tuple[int, ...]:
        """Numbers of batches after which to evaluate, those at the end of a task among them."""

    def images_after(self, steps: int) -> int:
        """Return the number of images in the first batches of the stream."""

    def test(self, task: int) -> Split:
        """Return the test images of a task, on the device of the stream."""
