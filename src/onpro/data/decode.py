"""Decode image files to small square RGB images.

Pillow and torchvision decode JPEG files with the same library at the same speed. torchvision
resizes faster, but its pixels depend on the CPU's instruction set; hence Pillow.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import BytesIO
from pathlib import Path
from threading import Condition
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from onpro.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

MOST_PIXELS_IN_FILE = 2**26
"""Larger images are refused before they are decoded."""

MOST_PIXELS_AT_ONCE = 2**26
"""Total pixels of the images being decoded at any time, over all threads. Each takes about 8 bytes
until the image is resized."""

STRIP_PIXELS = 2**18
"""Conversions that need many bytes a pixel process this many pixels at a time."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Pillow formats that are decoded, whatever the file's suffix. Others can be unsafe: Pillow runs
EPS files with Ghostscript."""

Pixels = npt.NDArray[np.uint8]

Taking = Callable[[int], AbstractContextManager[None]]
"""Gives a context in which a number of pixels may be decoded."""


class Quota:
    """A semaphore of which threads acquire many units at once."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._changed = Condition()

    @contextmanager
    def taking(self, amount: int) -> Iterator[None]:
        """Wait until `amount` units are free and hold them inside the context."""
        with self._changed:
            self._changed.wait_for(lambda: self._free >= amount)
            self._free -= amount
        try:
            yield
        finally:
            with self._changed:
                self._free += amount
                self._changed.notify_all()


DECODING = Quota(MOST_PIXELS_AT_ONCE)
"""Pixels that may be decoded at the same time."""


class Encoded(NamedTuple):
    """An encoded image."""

    source: str | bytes
    """Path or content of a file; empty if the image is missing."""
    name: str
    """Name of the image in error messages."""


class Images(Protocol):
    """Encoded images."""

    @property
    def size(self) -> int:
        """Side of the decoded images in pixels."""

    @property
    def digest(self) -> str:
        """Identifies the images without decoding them."""

    def __len__(self) -> int:
        """Number of images."""

    def encoded(self, index: int) -> Encoded:
        """Return an image."""

    def check(self) -> None:
        """Raise a `UserError` that names a damaged image, as far as a quick look can tell."""


def decode_file(path: Path, size: int) -> "Tensor":
    """Decode an image file to uint8 (3, size, size); see `decode_image`."""
    import torch

    return torch.from_numpy(decode_image(Encoded(str(path), str(path)), size).copy())


def decode_image(encoded: Encoded, size: int, quota: Taking | None = None) -> Pixels:
    """Decode an encoded image to uint8 (3, size, size).

    The image is rotated according to its EXIF orientation, converted to RGB, resized with
    antialiasing so that its shorter side fits, and centre-cropped to a square. A `UserError` names
    an image that cannot be decoded.

    Args:
        encoded: the image.
        size: side of the square in pixels.
        quota: context in which a number of pixels may be decoded (default: a part of `DECODING`).
    """
    source, name = encoded
    if not source:
        raise UserError(f"the image {name} is missing; remove its row.")
    try:
        file = BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(file, formats=FORMATS) as image:
            _require_few_pixels(image)
            with (quota or DECODING.taking)(image.width * image.height):
                square = _square(image, size)
                image.close()  # frees its pixels
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"the image {name} has too many pixels; shrink or remove it.") from error
    except MemoryError:
        raise
    except UnidentifiedImageError as error:
        raise UserError(
            f"the image {name} cannot be read (it is damaged, or not an image); replace or remove"
            " it."
        ) from error
    except Exception as error:  # Pillow raises many kinds of errors on damaged files
        raise UserError(
            f"the image {name} cannot be read ({error}); replace or remove it."
        ) from error
    return np.asarray(square).transpose(2, 0, 1)


ENDS = {
    b"\xff\xd8\xff": b"\xff\xd9",  # JPEG
    b"\x89PNG": b"IEND",
    b"GIF8": b";",
    b"RIFF": b"",  # WebP
    b"BM": b"",
    b"II*\0": b"",  # TIFF
    b"MM\0*": b"",
    b"P": b"",  # PPM
}
"""How image files begin, and what occurs near their end; empty where it can be anything."""

TAIL = 64
"""Bytes in which the end of a file is looked for."""


def looks_whole(path: str) -> bool:
    """Return whether a file begins and ends like an image, which reads some bytes of it."""
    with open(path, "rb") as file:  # noqa: PTH123 # a million times
        start = file.read(8)
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
        tail = file.read()
    return any(start.startswith(begin) and end in tail for begin, end in ENDS.items())


def _square(image: Image.Image, size: int) -> Image.Image:
    return ImageOps.fit(as_rgb(upright(image)), (size, size), Image.Resampling.BILINEAR)


def _require_few_pixels(image: Image.Image) -> None:
    """Refuse decompression bombs; Pillow's own limit is higher, and only a warning at first."""
    if image.width * image.height > MOST_PIXELS_IN_FILE:
        raise Image.DecompressionBombError


def upright(image: Image.Image) -> Image.Image:
    """Return the image rotated according to its EXIF orientation; itself if there is none."""
    is_upright = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
    return image if is_upright else ImageOps.exif_transpose(image)


def as_rgb(image: Image.Image) -> Image.Image:
    """Convert an image to 8-bit RGB; transparent pixels become white."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    if image.mode.startswith("I"):
        return _by_strips(image, _from_sixteen_bits)
    if image.has_transparency_data:
        return _by_strips(image, _on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Convert an image to RGB a few rows at a time, to limit memory."""
    image.load()
    width, height = image.size
    rgb = Image.new("RGB", image.size)
    rows = max(1, STRIP_PIXELS // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        rgb.paste(convert(strip), (0, top))
    return rgb


def _on_white(image: Image.Image) -> Image.Image:
    foreground = image.convert("RGBA")
    background = Image.new("RGBA", foreground.size, "white")
    return Image.alpha_composite(background, foreground).convert("RGB")


def _from_sixteen_bits(image: Image.Image) -> Image.Image:
    """Scale 0…65535 to 0…255; Pillow's own conversion clips at 255."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
