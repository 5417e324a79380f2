"""Splits whose images are decoded when they are needed, for data sets larger than memory."""

import functools
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import closing

import torch
from torch import Tensor

from onpro.data.decode import Images, Pixels
from onpro.data.imageset import Split
from onpro.data.workers import decode_all, decoded
from onpro.errors import UserError
from onpro.text import visible

LOG = logging.getLogger(__name__)

LIMIT = "ONPRO_IMAGE_MEMORY"
"""Environment variable: GiB of decoded images that a split may keep in memory."""

DEFAULT_LIMIT = 8 * 2**30
"""Bytes of decoded images that a split keeps in memory by default, or half of the machine's memory
if that is less. The test images of ImageNet-1k take 7.0 GiB at 224×224 pixels."""


def split_of(images: Images, labels: Tensor, *, what: str) -> Split:
    """Return a split: decoded to memory if it fits there, else decoded when needed.

    Images that are not decoded now are checked for damage first.

    Args:
        images: the encoded images.
        labels: one label per image.
        what: what the images are, for messages, such as "training images of birds".
    """
    bytes_needed, limit = 3 * images.size**2 * len(images), memory_limit()
    if bytes_needed <= limit:
        pixels = decode_all(images, range(len(images)), f"decoding {len(images)} {what}")
        return Split(torch.from_numpy(pixels), labels, images.digest)
    LOG.warning(
        "the %d %s take %.1f GiB decoded, more than %.1f GiB (%s): they are decoded as needed.",
        len(images),
        visible(what),
        bytes_needed / 2**30,
        limit / 2**30,
        LIMIT,
    )
    images.check()
    return LazySplit(images, labels)


def memory_limit() -> float:
    """Return how many bytes of decoded images a split keeps in memory."""
    given = os.environ.get(LIMIT)
    if not given:
        if not hasattr(os, "sysconf"):  # Windows
            return DEFAULT_LIMIT
        return min(DEFAULT_LIMIT, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2)
    try:
        return float(given) * 2**30
    except ValueError:
        raise UserError(f"{LIMIT} must be a number of GiB, not '{given}'.") from None


class LazySplit(Split):
    """A split whose images are decoded when they are needed, by workers ahead of the training.

    The order of batches is that of the indices given to `batches`, whatever the workers do.

    Args:
        source: the encoded images.
        labels: labels of the images of the split, on its device.
        indices: the images of the split as indices into the source, on the CPU; default: all.
        device: device of decoded images.
    """

    def __init__(
        self,
        source: Images,
        labels: Tensor,
        indices: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._source = source
        self._indices = torch.arange(len(labels)) if indices is None else indices
        self._device = torch.device(device)
        self.labels = labels

    @property
    def images(self) -> Tensor:
        """All images, decoded now."""
        title = f"decoding {len(self)} images"
        pixels = decode_all(self._source, self._indices.tolist(), title)
        return torch.from_numpy(pixels).to(self._device)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return 3, self._source.size, self._source.size

    def identify(self, digest: "hashlib._Hash") -> None:
        """Add what identifies the encoded images and the labels to a digest."""
        chosen = self._indices.numpy()
        everything = len(chosen) == len(self._source)
        digest.update(self._source.digest.encode() + (b"" if everything else chosen.tobytes()))
        digest.update(str(tuple(self.labels.shape)).encode())
        digest.update(self.labels.cpu().numpy().data)

    def to(self, device: torch.device) -> "LazySplit":
        """Return the split with images decoded to another device."""
        return LazySplit(self._source, self.labels.to(device), self._indices, device)

    def relabelled(self, new_labels: Tensor) -> "LazySplit":
        """Return the split with `new_labels[label]` in the place of each label."""
        labels = new_labels.to(self.labels.device)[self.labels]
        return LazySplit(self._source, labels, self._indices, self._device)

    def select(self, indices: Tensor) -> "LazySplit":
        """Return the split of the images at some indices, not decoded yet."""
        labels = self.labels.index_select(0, indices.to(self.labels.device))
        return LazySplit(self._source, labels, self._indices[indices.cpu()], self._device)

    def batches(self, indices: Iterable[Tensor]) -> Iterator[Split]:
        """Yield the images and labels at each of a sequence of indices, decoded ahead."""
        parts = list(indices)
        if not parts:
            return
        sizes = [len(part) for part in parts]
        together = torch.cat(parts)
        labels = self.labels.index_select(0, together.to(self.labels.device)).split(sizes)
        chosen = self._indices[together.cpu()].split(sizes)  # the only host–device sync
        with closing(decoded(self._source, [part.tolist() for part in chosen])) as decoding:
            for pixels, batch_labels in zip(decoding, labels, strict=True):
                yield Split(self._copied(pixels), batch_labels)

    def _copied(self, pixels: Pixels) -> Tensor:
        """Return a copy of decoded images on the device."""
        images = torch.from_numpy(pixels)
        if self._device.type != "cuda":
            return images.to(self._device, copy=True)
        # On a stream of its own, so that it waits for none of the steps that are still computed.
        stream, current = copy_stream(self._device), torch.cuda.current_stream(self._device)
        with torch.cuda.stream(stream):
            copied = images.to(self._device)
        current.wait_stream(stream)
        copied.record_stream(current)
        return copied


@functools.cache
def copy_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream on which images are copied to a GPU."""
    return torch.cuda.Stream(device)
