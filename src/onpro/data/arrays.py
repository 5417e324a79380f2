"""Data sets from NumPy arrays and torch tensors."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split, Triple, measure

Array = npt.NDArray[Any] | Tensor
Labels = npt.NDArray[Any] | Tensor | Sequence[Any]

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of images with pixels in 0…1."""

SLACK = 1e-4
"""Tolerance of the range 0…1 of float pixels, for overshoot of resizing and rounding."""


def from_arrays(
    train_images: Array,
    train_labels: Labels,
    test_images: Array,
    test_labels: Labels,
    *,
    name: str = "arrays",
    classes: Sequence[str] | None = None,
    mean: Triple | None = None,
    std: Triple | None = None,
) -> ImageSet:
    """Create a data set from arrays.

    Args:
        train_images: images in any form that `as_images` accepts.
        train_labels: one label per image, of any sortable type.
        test_images: images of the same size as the training images.
        test_labels: labels of the same type as the training labels.
        name: name of the data set in results.
        classes: class names; labels are then names or indices. Default: the sorted distinct
            training labels.
        mean: mean per channel of pixels scaled to 0…1; default: measured on the training images.
        std: standard deviation per channel, likewise.
    """
    train_values, test_values = _values(train_labels), _values(test_labels)
    names, codes = _classes(train_values, classes)
    train = _split("training", as_images(train_images), train_values, codes)
    test = _split("test", as_images(test_images), test_values, codes)
    measured_mean, measured_std = measure(train.images)
    return ImageSet(
        name=name,
        train=train,
        test=test,
        classes=names,
        mean=measured_mean if mean is None else mean,
        std=measured_std if std is None else std,
    )


def as_images(images: Array) -> Tensor:
    """Convert images to uint8 (n, 3, height, width), on the same device.

    The result may share memory with uint8 input.

    Args:
        images: uint8, or floats in 0…1; (n, height, width, channels), (n, channels, height, width)
            or grayscale (n, height, width); 1 or 3 channels.
    """
    pixels = plain_tensor(images) if isinstance(images, Tensor) else _tensor(images)
    return _as_uint8(_as_nchw(pixels)).contiguous()


def plain_tensor(images: Tensor) -> Tensor:
    """Detach a tensor and strip its subclass.

    Raises:
        ValueError: if it is sparse, nested, quantized, masked or on the meta device.
    """
    dense = images.layout == torch.strided and not (images.is_nested or images.is_quantized)
    plain: Tensor | None = None
    if dense and images.device.type != "meta":
        with suppress(RuntimeError, TypeError):  # from subclasses without storage
            plain = images.detach().as_subclass(Tensor).resolve_neg()
    if type(plain) is not Tensor:
        raise ValueError(
            "images must be plain arrays of numbers, not sparse, nested or without values"
        )
    return plain


def _tensor(images: Any) -> Tensor:
    try:
        array = np.ascontiguousarray(images)
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except TypeError as error:
        raise ValueError(f"images must be arrays of numbers: {error}") from error


def _as_nchw(pixels: Tensor) -> Tensor:
    if pixels.ndim == 3 and 0 not in pixels.shape[1:]:
        return pixels[:, None].expand(-1, 3, -1, -1)
    if pixels.ndim != 4 or 0 in pixels.shape[1:]:
        raise ValueError(
            "images must have the shape (n, height, width, channels), (n, channels, height, width)"
            f" or (n, height, width), not {tuple(pixels.shape)}"
        )
    first, last = pixels.shape[1] in (1, 3), pixels.shape[3] in (1, 3)
    if first == last:
        problem = "both the second and the last axis have" if first else "no axis has"
        raise ValueError(
            f"images of shape {tuple(pixels.shape)} have no clear channel axis: {problem} 1 or 3"
            f" channels{'; drop the alpha channel' if 4 in pixels.shape[1::2] else ''}"
        )
    pixels = pixels if first else pixels.permute(0, 3, 1, 2)
    return pixels.expand(-1, 3, -1, -1)


def _as_uint8(pixels: Tensor) -> Tensor:
    if pixels.dtype == torch.uint8:
        return pixels
    if pixels.dtype not in FLOATS:
        dtype = str(pixels.dtype).removeprefix("torch.")
        raise ValueError(
            f"images must be uint8 or floats in 0…1, not {dtype}: convert pixels in 0…255 to uint8"
        )
    if not bool(pixels.isfinite().all()):
        raise ValueError("images must not contain NaN or infinite values")
    pixels = pixels.float()
    if not bool(((pixels >= -SLACK) & (pixels <= 1 + SLACK)).all()):
        raise ValueError("float images must lie in 0…1; divide pixels in 0…255 by 255")
    return (pixels.clamp(0, 1) * 255).round().to(torch.uint8)


def _values(labels: Labels) -> list[Any]:
    """Convert labels to Python values."""
    if isinstance(labels, (np.ndarray, Tensor)):
        if labels.ndim != 1:
            raise ValueError(f"labels must have the shape (n,), not {tuple(labels.shape)}")
        values: list[Any] = labels.tolist()
        return values
    return [label.item() if isinstance(label, np.generic) else label for label in labels]


def _classes(
    values: Iterable[Any], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Return the class names, and the class index of each label."""
    if classes is None:
        try:
            known = sorted(set(values))
        except TypeError as error:
            raise ValueError(f"labels must be of one type that can be sorted: {error}") from error
        return tuple(str(value) for value in known), {value: i for i, value in enumerate(known)}
    if len(set(classes)) < len(classes):
        raise ValueError("class names must be distinct")
    by_name: dict[Any, int] = {name: i for i, name in enumerate(classes)}
    return tuple(classes), by_name | {i: i for i in range(len(classes))}


def _split(part: str, images: Tensor, values: list[Any], codes: dict[Any, int]) -> Split:
    if not len(images):
        raise ValueError(f"there are no {part} images")
    if len(images) != len(values):
        raise ValueError(f"there are {len(images)} {part} images but {len(values)} labels")
    unknown = [value for value in values if value not in codes]
    if unknown:
        raise ValueError(f"the {part} label {unknown[0]!r} is not among the classes")
    labels = torch.tensor([codes[value] for value in values], dtype=torch.int64)
    return Split(images, labels.to(images.device))
