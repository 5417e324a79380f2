"""Convert user input to the internal form: images, labels, parameters.

Input whose meaning is not clear is refused with a ValueError that says what to do.
"""

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence, Set, Sized
from dataclasses import fields, replace
from numbers import Integral
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageFile
from torch import Tensor

from onpro.data.arrays import as_images, plain_tensor
from onpro.data.decode import DECODING, FORMATS, MOST_PIXELS_IN_FILE, as_rgb, upright
from onpro.data.imageset import Triple, resize
from onpro.errors import unknown
from onpro.methods import Settings

MAX_PIXELS = 2**20
"""Number of pixels of an image to learn from, such as 1024×1024."""
MAX_MEAN = 1e6
"""Of pixels, and of their standard deviation. Pixels are in 0…1, so a larger one is a mistake."""

MAX_NESTING, MAX_BITS = 50, 10_000
"""Of saved labels: tuples in tuples, and bits of an integer; Python parses no longer ones."""

NUMBERS_AND_NAMES = "biufUSTO"
"""Kinds of NumPy arrays accepted as labels: booleans, numbers, strings, objects."""


def as_pixels(images: Any, size: int | None = None) -> Tensor:
    """Convert images to uint8 (n, 3, height, width).

    Args:
        images: A NumPy array or torch tensor of shape (n, height, width, channels),
            (n, channels, height, width) or grey (n, height, width), uint8 or floats in 0…1, with 1
            or 3 channels; or a list of such images, or of Pillow images. The dimension of size 1 or
            3 is that of the channels; shapes where both could be, (n, 3, height, 3), and a single
            image (height, width, 3) are refused.
        size: Side to which every image is resized, with antialiasing, whatever its aspect ratio;
            None: all must be of one size.

    Raises:
        ValueError: if the images are refused.
    """
    if isinstance(images, (list, tuple, deque)):
        parts = [_one(image, size).cpu() for image in images]
        if len({part.shape for part in parts}) > 1:
            raise ValueError(
                "the images differ in size: make them alike, or give the classifier an image_size"
            )
        return torch.cat(parts) if parts else torch.empty((0, 3, 1, 1), dtype=torch.uint8)
    if isinstance(images, Image.Image):
        raise ValueError("a single image was given: put it into a list")
    pixels = _array(images)
    if tuple(pixels.shape) == (0,):
        return torch.empty((0, 3, 1, 1), dtype=torch.uint8)
    if pixels.ndim == 3 and pixels.shape[-1] in (1, 3):
        raise ValueError(
            f"images of shape {tuple(pixels.shape)} look like a single one: put it into a list"
        )
    return _resized(as_images(pixels), size)


def as_labels(labels: Any) -> list[Hashable]:
    """Convert labels to a list of hashable values, each equal to itself.

    Equal labels are one class, as in a dict: 1, 1.0 and True are, 1 and "1" are not. Elements of
    NumPy arrays and torch tensors become Python numbers and strings.
    """
    if isinstance(labels, (str, bytes, Mapping, Set)) or not isinstance(labels, Sized):
        raise ValueError(
            f"labels must be a list or an array, not {type(labels).__name__}: put a single label "
            "into a list"
        )
    if isinstance(labels, (np.ndarray, Tensor)):
        if labels.ndim != 1:
            raise ValueError(f"labels must have the shape (n,), not {tuple(labels.shape)}")
        if isinstance(labels, np.ndarray) and labels.dtype.kind not in NUMBERS_AND_NAMES:
            raise ValueError(f"labels must be numbers, strings or objects, not {labels.dtype}")
        if np.ma.is_masked(labels):
            raise ValueError("labels must not be masked: leave such images out")
        labels = _values(labels)
    try:
        values = list(labels)
    except Exception as error:  # raised by the code of a sequence
        raise ValueError(f"labels must be a list or an array: {error}") from error
    return [_label(label) for label in values]


def are_equal(label: Hashable, other: Hashable) -> bool:
    """Return whether two labels are equal."""
    try:
        return bool(label == other)
    except Exception as error:  # raised by the code of a label
        raise ValueError(f"labels cannot be told from each other: {error}") from error


def as_array(labels: Sequence[Hashable]) -> npt.NDArray[Any]:
    """Convert labels to an array of strings or numbers or, where types differ, of objects."""
    kinds = {type(label) for label in labels}
    if kinds in ({str}, {int}, {float}, {bool}):
        array = np.array(labels)
        # NumPy strips trailing null characters from strings and cannot hold the largest integers.
        if array.dtype.kind in "Uifb" and array.tolist() == list(labels):
            return array
    objects = np.empty(len(labels), dtype=object)
    for position, label in enumerate(labels):
        objects[position] = label
    return objects


def _array(images: Any) -> Tensor:
    if isinstance(images, Tensor):
        return plain_tensor(images)
    try:
        of_pillow = _holds_pillow(images)
        masked = np.ma.is_masked(images)
        array = np.asarray(None if of_pillow else images)
    except MemoryError:
        raise
    except Exception as error:  # raised by the code of the object
        raise ValueError(f"images must be arrays of numbers: {error}") from error
    if of_pillow:
        raise ValueError("images of Pillow must be in one plain list")
    if masked:
        raise ValueError("images must be plain arrays of numbers: fill what is masked")
    if array.dtype.kind in "SU":
        raise ValueError(
            "images must be arrays of numbers or Pillow images, not text: open files with "
            "PIL.Image.open"
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ValueError(f"images must be arrays of numbers, not of {array.dtype}")
    native = array.dtype.newbyteorder("=")
    return torch.from_numpy(array.astype(native, order="C", copy=not array.flags.writeable))


def _holds_pillow(images: Any) -> bool:
    """Return whether NumPy would make Pillow decode an image, of whatever format."""
    if isinstance(images, Image.Image):
        return True
    plain = (str, bytes, bytearray, memoryview, range)
    return (
        isinstance(images, Sequence)
        and not isinstance(images, plain)
        and any(map(_holds_pillow, images))
    )


def _one(image: Any, size: int | None) -> Tensor:
    """Convert one image of a list to uint8 (1, 3, height, width), resized."""
    if isinstance(image, Image.Image):
        return _of_pillow(image, size)
    pixels = _array(image)
    if pixels.ndim not in (2, 3):
        raise ValueError(
            "an image of a list must have the shape (height, width, channels), "
            f"(channels, height, width) or (height, width), not {tuple(pixels.shape)}"
        )
    return _resized(as_images(pixels[None]), size)


def _resized(pixels: Tensor, size: int | None) -> Tensor:
    height, width = pixels.shape[2:]
    _require_moderate(height, width, size)
    if size is None or (height, width) == (size, size) or not len(pixels):
        return pixels
    return resize(pixels, size)


def _require_moderate(height: int, width: int, size: int | None) -> None:
    if size is None and height * width > MAX_PIXELS:
        raise ValueError(
            f"images of {height}×{width} pixels are too large to learn from, which takes up to "
            f"{MAX_PIXELS:,} pixels: give the classifier an image_size"
        )


def _of_pillow(image: Image.Image, size: int | None) -> Tensor:
    """Convert a Pillow image to uint8 (1, 3, height, width), upright, on white."""
    width, height = image.size
    if width * height > MOST_PIXELS_IN_FILE:
        raise ValueError(f"an image of {width}×{height} pixels is refused: make it smaller")
    _require_moderate(height, width, size)
    # MPO is Pillow's name for a JPEG file that contains several images.
    if isinstance(image, ImageFile.ImageFile) and image.format not in (*FORMATS, "MPO"):
        raise ValueError(
            f"a file of the format {image.format} is not decoded here: give image.convert('RGB')"
        )
    with DECODING.taking(width * height):
        try:
            pixels = np.array(as_rgb(upright(image)))
        except MemoryError:
            raise
        except Exception as error:  # decoders raise anything on damaged files
            raise ValueError(f"an image cannot be read: {error}") from error
        return _resized(as_images(pixels[None]), size)


def _label(given: Any) -> Hashable:
    if isinstance(given, Tensor) and given.ndim:
        raise ValueError("labels must be single values, not tensors")
    try:
        label: Hashable = _values(given) if isinstance(given, Tensor) else _plain_label(given)
        hash(label)
        same = _equals_itself(given) and _equals_itself(label)  # NaT becomes None
    except Exception as error:  # raised by the code of a label, or by its depth
        raise ValueError(
            f"a label of the kind {type(given).__name__} cannot be told from others: {error}"
        ) from error
    if not same:
        raise ValueError(
            f"a label of the kind {type(given).__name__} is not equal to itself: "
            "leave such images out"
        )
    return label


def _values(labels: npt.NDArray[Any] | Tensor) -> Any:
    """Return the values of an array or a tensor as Python values."""
    try:
        return labels.tolist()
    except RuntimeError as error:  # meta tensors and sparse ones
        raise ValueError(f"labels must be plain values: {error}") from error


def _plain_label(label: Any) -> Hashable:
    """Convert NumPy scalars to Python values, also inside tuples."""
    if type(label) is tuple:
        return tuple(_plain_label(part) for part in label)
    plain: Hashable = label.item() if isinstance(label, np.generic) else label
    return plain


def _equals_itself(label: Any) -> bool:
    if isinstance(label, tuple):
        return all(_equals_itself(part) for part in label)
    return bool(label == label)  # NaN is not


def can_be_saved(label: Hashable, level: int = 0) -> bool:
    """Return whether a label can be restored from a file."""
    if type(label) is tuple:
        return level < MAX_NESTING and all(can_be_saved(part, level + 1) for part in label)
    if type(label) is int:
        return label.bit_length() <= MAX_BITS
    return type(label) in (str, bool, NoneType) or (type(label) is float and math.isfinite(label))


def as_settings(
    method: str, defaults: Settings, given: Mapping[str, Any], others: Sequence[str]
) -> Settings:
    """Replace some of a method's settings, and check them all.

    Args:
        method: Name of the method.
        defaults: Its settings.
        given: Values by name.
        others: Names, besides those of settings, to suggest for an unknown name.
    """
    known = [field.name for field in fields(defaults)]
    for name in given:
        if name not in known:
            raise unknown(f"setting of {method}", name, [*known, *others])
    settings = replace(defaults, **{name: _plain(value) for name, value in given.items()})
    settings.check()
    return settings


def as_whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """Convert to int, and check the bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    if int(value) < least or (most is not None and int(value) > most):
        raise ValueError(
            f"{name} must be at least {least}{f' and at most {most}' if most else ''}, not {value}"
        )
    return int(value)


def as_per_channel(name: str, value: Any) -> Triple:
    """Convert one number for all channels, or one for each, to three floats."""
    try:
        numbers = np.broadcast_to(value, 3)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or three, not {value!r}") from error
    if numbers.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be a number or three, not {value!r}")
    if not (np.abs(numbers) <= MAX_MEAN).all():
        raise ValueError(f"{name} must be finite and like pixels in 0…1, not {value!r}")
    red, green, blue = numbers.astype(float).tolist()
    return red, green, blue


def as_device(device: Any) -> torch.device | None:
    """Return the device of this name, None for "auto"; refuse one that is not there.

    torch counts GPUs through NVML, which does not initialise CUDA.
    """
    if isinstance(device, str) and device == "auto":
        return None
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"there is no device {device!r}: take auto, cpu or cuda") from error
    if named.type not in ("cpu", "cuda"):
        raise ValueError(f"a device {named} is not supported: take auto, cpu or cuda")
    if named.type == "cuda" and (named.index or 0) >= torch.cuda.device_count():
        raise ValueError(f"there is no device {named} here: take cpu, or auto")
    return named


def as_weights(weights: Any, count: int) -> npt.NDArray[np.float64]:
    """Convert weights of images to an array (count,); they are at least 0, and not all 0."""
    try:
        numbers = np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"weights must be numbers: {error}") from error
    if numbers.shape != (count,):
        raise ValueError(f"there are {count} images but weights of the shape {numbers.shape}")
    if not (np.isfinite(numbers) & (numbers >= 0)).all() or not numbers.any():
        raise ValueError("weights must be finite, not below 0, and not all 0")
    return numbers


def _plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return tuple(_plain(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value
