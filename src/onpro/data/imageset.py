"""The data set type of every source: uint8 images, labels, class names, pixel statistics."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from onpro.errors import UserError

Triple = tuple[float, float, float]

MEASURED = 5000
"""Largest number of training images that mean and standard deviation are measured on."""


class Split:
    """Images (n, 3, height, width) as uint8 and their labels (n,) as int64.

    The images are in memory, on any device; those of a `LazySplit` are decoded when needed.

    Args:
        images: the images.
        labels: an index into the classes for each image.
        digest: identifies the files that the images were decoded from; default: the pixels identify
            the split.
    """

    def __init__(self, images: Tensor, labels: Tensor, digest: str | None = None) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError("images must be uint8 of shape (n, 3, height, width)")
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise ValueError("labels must be int64, one for each image")
        self._images = images
        self._digest = digest
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def images(self) -> Tensor:
        """All images."""
        return self._images

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        channels, height, width = self._images.shape[1:]
        return int(channels), int(height), int(width)

    def identify(self, digest: "hashlib._Hash") -> None:
        """Add what identifies the split to a digest; it is the same on every device."""
        if self._digest:
            digest.update(self._digest.encode())
        for values in (self.labels,) if self._digest else (self.images, self.labels):
            digest.update(str(tuple(values.shape)).encode())
            digest.update(values.cpu().contiguous().numpy().data)

    def to(self, device: torch.device) -> "Split":
        """Return the split on another device."""
        return Split(self.images.to(device), self.labels.to(device), self._digest)

    def relabelled(self, new_labels: Tensor) -> "Split":
        """Return the split with `new_labels[label]` in the place of each label."""
        labels = new_labels.to(self.labels.device)[self.labels]
        return Split(self.images, labels, self._digest)

    def select(self, indices: Tensor) -> "Split":
        """Return the images and labels at some indices."""
        return Split(self.images.index_select(0, indices), self.labels.index_select(0, indices))

    def batches(self, indices: Iterable[Tensor]) -> Iterator["Split"]:
        """Yield the images and labels at each of a sequence of indices."""
        return map(self.select, indices)

    def first_per_class(self, count: int) -> "Split":
        """Return the first `count` images of each class."""
        kept = torch.zeros_like(self.labels, dtype=torch.bool)
        for label in self.labels.unique().tolist():
            kept[(self.labels == label).nonzero()[:count, 0]] = True
        return self if bool(kept.all()) else self.select(kept.nonzero()[:, 0])


@dataclass(frozen=True, eq=False)
class ImageSet:
    """A data set: a training and a test split over the same classes."""

    name: str
    train: Split
    test: Split
    classes: tuple[str, ...]
    """Class names; a label is an index into this tuple."""
    mean: Triple
    """Mean of each colour channel of the pixels scaled to 0…1."""
    std: Triple
    """Standard deviation of each colour channel of the pixels scaled to 0…1."""

    def __post_init__(self) -> None:
        if self.train.image_shape != self.test.image_shape:
            raise ValueError("training and test images must have the same size")
        for split in (self.train, self.test):
            if len(split) and not 0 <= int(split.labels.min()) <= int(split.labels.max()) < len(
                self.classes
            ):
                raise ValueError("labels must be indices into the list of classes")

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image."""
        return self.train.image_shape

    @cached_property
    def fingerprint(self) -> str:
        """Digest of both splits, the same on every device."""
        digest = hashlib.sha256()
        for split in (self.train, self.test):
            split.identify(digest)
        return digest.hexdigest()

    def to(self, device: torch.device) -> "ImageSet":
        """Return the data set on another device."""
        return replace(self, train=self.train.to(device), test=self.test.to(device))

    def limit_per_class(self, count: int) -> "ImageSet":
        """Keep the first `count` training and the first `count` test images of each class."""
        if count < 1:
            raise UserError(f"the limit per class must be at least 1, not {count}.")
        train, test = (split.first_per_class(count) for split in (self.train, self.test))
        return replace(self, train=train, test=test)

    def for_validation(self, share: float) -> "ImageSet":
        """Hold out a share of each class's training images, which replace the test images.

        At least one image of a class is held out, and at least one is left. Which ones does not
        depend on the seed of a run: settings are compared on the same images.
        """
        labels = self.train.labels.cpu()
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
        held_out = torch.zeros(len(labels), dtype=torch.bool)
        for label in labels.unique().tolist():
            members = order[labels[order] == label]
            if len(members) < 2:
                raise UserError(
                    f"the class {self.classes[label]} has a single training image, of which none "
                    "can be held out for validation."
                )
            held_out[members[: min(max(round(share * len(members)), 1), len(members) - 1)]] = True
        device = self.train.labels.device
        train, test = (
            self.train.select(chosen.nonzero()[:, 0].to(device)) for chosen in (~held_out, held_out)
        )
        return replace(self, train=train, test=test)

    def resized(self, size: int) -> "ImageSet":
        """Return the data set with images resized to `size`×`size` pixels, with antialiasing.

        Mean and standard deviation stay those of the original size: they are published constants
        for some sources, and resizing hardly changes them.
        """
        if self.image_shape[1:] == (size, size):
            return self
        train, test = (
            Split(resize(split.images, size), split.labels) for split in (self.train, self.test)
        )
        return replace(self, train=train, test=test)


def measure(images: Tensor) -> tuple[Triple, Triple]:
    """Return mean and standard deviation per channel of uint8 images (n, 3, height, width).

    Pixels are scaled to 0…1. The statistics are computed from a histogram, so that they are exact
    for any number of images. The standard deviation of a constant channel is 1.
    """
    values = torch.arange(256, dtype=torch.float64) / 255
    mean, std = [], []
    for channel in images.cpu().unbind(1):
        share = torch.bincount(channel.flatten(), minlength=256).double() / channel.numel()
        centre = (share * values).sum()
        deviation = float((share * (values - centre).square()).sum().sqrt())
        mean.append(float(centre))
        std.append(deviation if deviation > 1e-6 else 1.0)
    return (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])


def measured(split: Split) -> tuple[Triple, Triple]:
    """Return mean and standard deviation of a split; see `measure`.

    Of more than `MEASURED` images, evenly spaced ones are measured.
    """
    step = -(-len(split) // MEASURED)
    chosen = torch.arange(0, len(split), max(1, step), device=split.labels.device)
    return measure(split.images if step <= 1 else split.select(chosen).images)


def resize(images: Tensor, size: int) -> Tensor:
    """Resize uint8 images (n, 3, height, width) to `size`×`size` pixels, with antialiasing.

    Works in chunks, because the float32 intermediates take four times the memory of the images.
    """
    chunks = [
        interpolate(chunk.float(), (size, size), mode="bilinear", antialias=True)
        .round_()
        .clamp_(0, 255)
        .to(torch.uint8)
        for chunk in torch.split(images, 64)
    ]
    return torch.cat(chunks)
