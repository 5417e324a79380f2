"""From an image file of any kind to a small square of RGB pixels."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from onpro.errors import UserError

MOST_PIXELS_IN_FILE = 2**26
"""Images with more pixels are refused before they are decoded."""

AT_A_TIME = 64
"""Images that a thread reads before it asks for more."""


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
        with Image.open(path) as image:
            _require_few_pixels(image)
            upright = ImageOps.exif_transpose(image)
            square = ImageOps.fit(as_rgb(upright), (size, size), Image.Resampling.BILINEAR)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UserError(
            f"the image {path} has more pixels than any image needs; make it smaller or remove it."
        ) from error
    except Exception as error:  # decoders of damaged files raise whatever they stumble over
        raise UserError(
            f"the image {path} cannot be read ({error}); replace or remove it."
        ) from error
    return torch.from_numpy(np.array(square)).permute(2, 0, 1)


def _require_few_pixels(image: Image.Image) -> None:
    """Refuse a bomb; Pillow's own limit is higher, only a warning at first, and can be off."""
    if image.width * image.height > MOST_PIXELS_IN_FILE:
        raise Image.DecompressionBombError


def as_rgb(image: Image.Image) -> Image.Image:
    """8-bit RGB; what is transparent becomes white."""
    if image.mode == "F":
        raise ValueError("floating-point pixels have no known range")
    if image.mode.startswith("I"):
        return _from_sixteen_bits(image)
    if not image.has_transparency_data:
        return image.convert("RGB")
    paint = image.convert("RGBA")
    paper = Image.new("RGBA", paint.size, "white")
    return Image.alpha_composite(paper, paint).convert("RGB")


def _from_sixteen_bits(image: Image.Image) -> Image.Image:
    """Scale 0…65535 to 0…255, where Pillow's own conversion would clip at 255."""
    values = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
    return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")
