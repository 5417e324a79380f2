"""OCM's augmentation as one kernel: crop sides, positions, flip, resampling and gray at once.

The reference is `OcmAugmentation` without its fused branch, which takes some forty small operations
for the same numbers; both turn the same uniform random numbers into the same images.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from onpro.augment.geometry import CANDIDATES, MAX_ASPECT

PIXELS = 1024
"""Pixels a program works on at a time."""


def fused_ocm(
    images: Tensor,
    of_sides: Tensor,
    of_rest: Tensor,
    *,
    area: tuple[float, float],
    flip: float,
    gray: float,
) -> Tensor:
    """Flip, grayscale and resized crop of images (n, 3, h, w).

    Args:
        images: float32.
        of_sides: (2, n, candidates) numbers in 0…1, for area and aspect ratio of crops.
        of_rest: (4, n) numbers in 0…1, for column, row, flip and gray.
        area: range of the crop's area as a fraction of the image's.
        flip: probability of a horizontal flip.
        gray: probability of grayscale.
    """
    images = images.contiguous()
    n, _, height, width = images.shape
    varied = torch.empty_like(images)
    _vary[(n, triton.cdiv(height * width, PIXELS))](
        images,
        varied,
        of_sides,
        of_rest,
        n,
        height,
        width,
        area[0] * height * width,
        area[1] * height * width,
        flip,
        gray,
        math.log(MAX_ASPECT),
        CANDIDATES,
        triton.next_power_of_2(CANDIDATES),
        PIXELS,
    )
    return varied


@triton.jit
def _rounded(x):
    """To the nearest whole number, of two the even one."""
    nearest = tl.floor(x + 0.5)
    is_tie = nearest - x == 0.5
    is_odd = nearest - 2 * tl.floor(nearest / 2) == 1
    return tl.where(is_tie & is_odd, nearest - 1, nearest)


@triton.jit
def _clipped(x, side):
    """A position along an axis in pixels, kept between the outermost pixel centres."""
    return tl.minimum(tl.maximum(((x + 1) * side - 1) * 0.5, 0.0), side - 1.0)


@triton.jit(do_not_specialize=["n"])
def _vary(
    images,
    varied,
    of_sides,
    of_rest,
    n,
    height,
    width,
    smallest,
    largest,
    flip,
    gray,
    log_aspect,
    CANDIDATES: tl.constexpr,
    COLUMNS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    """Some pixels of one image.

    The crop is the first candidate that fits into the image, or else the whole image.
    """
    image = tl.program_id(0)
    k = tl.arange(0, COLUMNS)
    known = k < CANDIDATES
    place = of_sides + image * CANDIDATES + k
    root_area = tl.sqrt(tl.load(place, mask=known, other=0.0) * (largest - smallest) + smallest)
    stretch = tl.load(place + n * CANDIDATES, mask=known, other=0.0) - 0.5
    wide = tl.maximum(_rounded(root_area * tl.exp(stretch * log_aspect)), 1.0)
    high = tl.maximum(_rounded(root_area * tl.exp(stretch * -log_aspect)), 1.0)
    fits = known & (wide <= width) & (high <= height)
    first = tl.min(tl.where(fits, k, COLUMNS), axis=0)
    none = first == COLUMNS
    crop_width = tl.where(none, width * 1.0, tl.sum(tl.where(k == first, wide, 0.0), axis=0))
    crop_height = tl.where(none, height * 1.0, tl.sum(tl.where(k == first, high, 0.0), axis=0))

    room_x, room_y = width - crop_width, height - crop_height
    u = of_rest + image
    offset_x = (tl.floor(tl.load(u) * (2 * room_x + 1)) - room_x) / width
    offset_y = (tl.floor(tl.load(u + n) * (2 * room_y + 1)) - room_y) / height
    mirrored = tl.load(u + 2 * n) < flip
    is_gray = tl.load(u + 3 * n) < gray

    size = height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < size
    centre_x = (2 * (pixel % width) + 1 - width) / (width * 1.0)
    centre_y = (2 * (pixel // width) + 1 - height) / (height * 1.0)
    x = offset_x + crop_width / width * centre_x
    x = _clipped(tl.where(mirrored, -x, x), width)
    y = _clipped(offset_y + crop_height / height * centre_y, height)
    left, top = tl.floor(x), tl.floor(y)
    right_share, bottom_share = x - left, y - top
    column, row = left.to(tl.int32), top.to(tl.int32)
    corner = row * width + column
    has_right, has_bottom = inside & (column + 1 < width), inside & (row + 1 < height)

    source = images + image.to(tl.int64) * 3 * size
    target = varied + image.to(tl.int64) * 3 * size
    red = _bilinear(source, corner, width, right_share, bottom_share, inside, has_right, has_bottom)
    green = _bilinear(
        source + size, corner, width, right_share, bottom_share, inside, has_right, has_bottom
    )
    blue = _bilinear(
        source + 2 * size, corner, width, right_share, bottom_share, inside, has_right, has_bottom
    )
    luminance = 0.299 * red + 0.587 * green + 0.114 * blue
    tl.store(target + pixel, tl.where(is_gray, luminance, red), mask=inside)
    tl.store(target + size + pixel, tl.where(is_gray, luminance, green), mask=inside)
    tl.store(target + 2 * size + pixel, tl.where(is_gray, luminance, blue), mask=inside)


@triton.jit
def _bilinear(channel, corner, width, right_share, bottom_share, inside, has_right, has_bottom):
    """One channel between four pixels, of which those beyond the edge have no share."""
    top_left = tl.load(channel + corner, mask=inside, other=0.0)
    top_right = tl.load(channel + corner + 1, mask=has_right, other=0.0)
    bottom_left = tl.load(channel + corner + width, mask=has_bottom, other=0.0)
    bottom_right = tl.load(channel + corner + width + 1, mask=has_right & has_bottom, other=0.0)
    top = top_left * (1 - right_share) + top_right * right_share
    bottom = bottom_left * (1 - right_share) + bottom_right * right_share
    return top * (1 - bottom_share) + bottom * bottom_share
