"""What every stream offers."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

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
