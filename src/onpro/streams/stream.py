"""What every stream offers."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from onpro.data.imageset import Split
from onpro.streams.batch import Batch

State = dict[str, Any]
"""A few plain values that JSON can hold."""


class Stream(Protocol):
    """Batches in a fixed order that are seen once, with a position to go on from."""

    @property
    def num_classes(self) -> int | None:
        """Number of classes of the whole stream; None where nobody announces it."""

    @property
    def position(self) -> int:
        """How many batches have been handed out."""

    def __iter__(self) -> Iterator[Batch]:
        """The batches from the position on; the position moves with every batch handed out."""

    def __len__(self) -> int:
        """Number of batches from first to last, those handed out among them."""

    def state_dict(self) -> State:
        """The position, and what tells this stream from others."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position; ValueError if the state is of another stream."""


class Benchmark(Stream, Protocol):
    """A stream with tasks that end, and test images to examine a method after each."""

    @property
    def num_classes(self) -> int:
        """Number of classes of the whole stream."""

    @property
    def num_tasks(self) -> int:
        """Number of tasks."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; a label is a position here."""

    @property
    def task_classes(self) -> tuple[tuple[int, ...], ...]:
        """Labels of each task."""

    @property
    def steps_per_task(self) -> tuple[int, ...]:
        """Number of batches of each task."""

    def test(self, task: int) -> Split:
        """The test images of a task, on the stream's device."""
