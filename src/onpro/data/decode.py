"""From an image file of any kind to a small square of RGB pixels."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Condition

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps
from torch import Tensor

from onpro.errors import UserError

MOST_PIXELS_IN_FILE = 2**26
"""Images with more pixels are refused before they are decoded."""

MOST_PIXELS_AT_ONCE = 2**26
"""Pixels of all images that are being decoded at one time, in whatever threads: each takes some
8 bytes until it is resized."""

PIXELS_OF_A_STRIP = 2**18
"""Conversions that take many bytes a pixel work on so many at a time."""

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""Formats of Pillow that are decoded, whatever a file is called. Not every other is harmless: EPS
is run as a program, by Ghostscript."""

AT_A_TIME = 64
"""Images that a thread reads before it asks for more."""


class Quota:
    """So much of something, of which threads take parts for a while."""

    def __init__(self, most: int) -> None:
        self._free = most
        self._changed = Condition()

    @contextmanager
    def taking(self, amount: int) -> Iterator[None]:
        """Wait until so much is free, and take it."""
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
"""Pixels that may be decoded at the moment."""


def decode_all(
    paths: Sequence[Path], size: int, progress: Callable[[int], None] = lambda done: None
) -> Tensor:
    """Read image files as uint8 (n, 3, size, size), in threads: Pillow works outside Python's lock.

    Args:
        paths: the files.
        size: side of the square images in pixels.
        progress: is told now and then how many have been read.
    """
    images = torch.empty(len(paths), 3, size, size, dtype=torch.uint8)
    starts = range(0, len(paths), AT_A_TIME)

    def read(start: int) -> None:
        for index, path in enumerate(paths[start : start + AT_A_TIME], start):
            images[index] = decode(path, size)

    with ThreadPoolExecutor() as pool:
        try:
            for start, _ in zip(starts, pool.map(read, starts), strict=True):
                progress(min(start + AT_A_TIME, len(paths)))
        except BaseException:  # an interruption waits for no queue either
            pool.shutdown(cancel_futures=True)
            raise
    return images


def decode(path: Path, size: int) -> Tensor:
    """Read an image file as uint8 (3, size, size).

    The image is turned upright as its EXIF data say and becomes RGB. It is resized once, with
    antialiasing, so that its shorter side fits, and cropped in the middle: it stays undistorted.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            _require_few_pixels(image)
            with DECODING.taking(image.width * image.height):
                square = _square(image, size)
                image.close()  # gives its pixels back
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(
            f"the image {path} has more pixels than any image needs; make it smaller or remove it."
        ) from error
    except MemoryError:
        raise
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise UserError(
            f"the image {path} cannot be read ({error}); replace or remove it."
        ) from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def _square(image: Image.Image, size: int) -> Image.Image:
    return ImageOps.fit(as_rgb(upright(image)), (size, size), Image.Resampling.BILINEAR)


def _require_few_pixels(image: Image.Image) -> None:
    """Refuse a bomb; Pillow's own limit is higher, only a warning at first, and can be off."""
    if image.width * image.height > MOST_PIXELS_IN_FILE:
        raise Image.DecompressionBombError


def upright(image: Image.Image) -> Image.Image:
    """The image turned as its EXIF data say; itself where they say nothing."""
    usual = image.getexif().get(ExifTags.Base.Orientation, 1) == 1
    return image if usual else ImageOps.exif_transpose(image)


def as_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB; what is transparent becomes white."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    if image.mode.startswith("I"):
        return _by_strips(image, _from_sixteen_bits)
    if image.has_transparency_data:
        return _by_strips(image, _on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _by_strips(image: Image.Image, convert: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """The image converted to RGB, some rows at a time, so that no copy of all of it is needed."""
    image.load()
    width, height = image.size
    rgb = Image.new("RGB", image.size)
    rows = max(1, PIXELS_OF_A_STRIP // width)
    for top in range(0, height, rows):
        strip = image.crop((0, top, width, min(top + rows, height)))
        rgb.paste(convert(strip), (0, top))
    return rgb


def _on_white(image: Image.Image) -> Image.Image:
    paint = image.convert("RGBA")
    paper = Image.new("RGBA", paint.size, "white")
    return Image.alpha_composite(paper, paint).convert("RGB")


def _from_sixteen_bits(image: Image.Image) -> Image.Image:
    """Scale 0…65535 to 0…255, where Pillow's own conversion would clip at 255."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
