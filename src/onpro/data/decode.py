"""Decode image files to small square RGB images."""

import logging
import time
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

LOG = logging.getLogger(__name__)

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

CHUNK = 64
"""Images that a thread decodes before it takes more."""

LOG_INTERVAL = 10.0
"""Seconds between progress messages."""


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


def decode_files(paths: Sequence[Path], size: int, *, title: str | None = None) -> Tensor:
    """Decode image files to uint8 (n, 3, size, size), in threads.

    Args:
        paths: the files.
        size: side of the square images in pixels.
        title: logs progress under this title every few seconds; default: no progress.
    """
    images = torch.empty(len(paths), 3, size, size, dtype=torch.uint8)
    starts = range(0, len(paths), CHUNK)

    def decode_chunk(start: int) -> None:
        for index, path in enumerate(paths[start : start + CHUNK], start):
            images[index] = decode_file(path, size)

    logged = time.monotonic()
    with ThreadPoolExecutor() as pool:  # Pillow decodes without holding the GIL
        try:
            for start, _ in zip(starts, pool.map(decode_chunk, starts), strict=True):
                if title and time.monotonic() - logged >= LOG_INTERVAL:
                    logged = time.monotonic()
                    done = min(start + CHUNK, len(paths))
                    LOG.warning("%s: %d %%", title, 100 * done // len(paths))
        except BaseException:  # on Ctrl-C too, without working off the queue
            pool.shutdown(cancel_futures=True)
            raise
    return images


def decode_file(path: Path, size: int) -> Tensor:
    """Decode an image file to uint8 (3, size, size).

    The image is rotated according to its EXIF orientation, converted to RGB, resized with
    antialiasing so that its shorter side fits, and centre-cropped to a square.
    """
    try:
        with Image.open(path, formats=FORMATS) as image:
            _require_few_pixels(image)
            with DECODING.taking(image.width * image.height):
                square = _square(image, size)
                image.close()  # frees its pixels
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(f"the image {path} has too many pixels; shrink or remove it.") from error
    except MemoryError:
        raise
    except Exception as error:  # Pillow raises many kinds of errors on damaged files
        raise UserError(
            f"the image {path} cannot be read ({error}); replace or remove it."
        ) from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


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
