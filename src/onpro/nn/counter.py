"""Count the images that go through networks in training."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class ImageCounter:
    """Number of images counted so far."""

    images: int = 0


_counter: ContextVar[ImageCounter | None] = ContextVar("counter", default=None)


@contextmanager
def counting_images() -> Iterator[ImageCounter]:
    """Count the images of all forward passes inside; an outer counter does not see them."""
    counter = ImageCounter()
    token = _counter.set(counter)
    try:
        yield counter
    finally:
        _counter.reset(token)


def count_images(images: int) -> None:
    """Add to the current counter, if there is one."""
    counter = _counter.get()
    if counter is not None:
        counter.images += images
