"""OCM's augmentation as one Triton kernel.

The reference is `OcmAugmentation` with `fused=False`, which takes about forty small operations.
Both map the same uniform random numbers to the same images, up to rounding.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from onpro.augment.geometry import CANDIDATES, MAX_ASPECT

PIXELS = 1024
"""Pixels per program."""


def fused_ocm(
    images: Tensor,
    u_sides: Tensor,
    u_rest: Tensor,
    *,
    area: tuple[float, float],
    flip: float,
    gray: float,
) -> Tensor:
    """Flip, convert to grayscale, crop and resize images.

    Args:
        images: (n, 3, h, w) float32.
        u_sides: (2, n, candidates) uniform numbers in [0, 1) for area and aspect ratio of crops.
        u_rest: (4, n) uniform numbers in [0, 1) for column, row, flip and grayscale.
        area: Range of the crop's area as a fraction of the image's.
        flip: Probability of a horizontal flip.
        gray: Probability of grayscale.

    Returns:
        (n, 3, h, w) augmented images.
    """
    images = images.contiguous()
    n, _, height, width = images.shape
    augmented = torch.empty_like(images)
    _augment[(n, triton.cdiv(height * width, PIXELS))](
        images,
        augmented,
        u_sides,
        u_rest,
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
    return augmented


@triton.jit
def _round(x):
    """Round half to even."""
    nearest = tl.floor(x + 0.5)
    is_tie = nearest - x == 0.5
    is_odd = nearest - 2 * tl.floor(nearest / 2) == 1
    return tl.where(is_tie & is_odd, nearest - 1, nearest)


@triton.jit
def _pixel_position(x, side):
    """Convert a coordinate to pixels, clamped to the outermost pixel centres."""
    return tl.minimum(tl.maximum(((x + 1) * side - 1) * 0.5, 0.0), side - 1.0)


@triton.jit(do_not_specialize=["n"])
def _augment(
    images,
    augmented,
    u_sides,
    u_rest,
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
    """Compute a block of pixels of one image."""
    image = tl.program_id(0)
    k = tl.arange(0, COLUMNS)
    is_candidate = k < CANDIDATES
    candidate = u_sides + image * CANDIDATES + k
    root_area = tl.sqrt(
        tl.load(candidate, mask=is_candidate, other=0.0) * (largest - smallest) + smallest
    )
    stretch = tl.load(candidate + n * CANDIDATES, mask=is_candidate, other=0.0) - 0.5
    # The crop is the first candidate that fits into the image, or the whole image.
    widths = tl.maximum(_round(root_area * tl.exp(stretch * log_aspect)), 1.0)
    heights = tl.maximum(_round(root_area * tl.exp(stretch * -log_aspect)), 1.0)
    fits = is_candidate & (widths <= width) & (heights <= height)
    first = tl.min(tl.where(fits, k, COLUMNS), axis=0)
    none_fits = first == COLUMNS
    crop_width = tl.where(none_fits, width * 1.0, tl.sum(tl.where(k == first, widths, 0.0), axis=0))
    crop_height = tl.where(
        none_fits, height * 1.0, tl.sum(tl.where(k == first, heights, 0.0), axis=0)
    )

    room_x, room_y = width - crop_width, height - crop_height
    u = u_rest + image
    offset_x = (tl.floor(tl.load(u) * (2 * room_x + 1)) - room_x) / width
    offset_y = (tl.floor(tl.load(u + n) * (2 * room_y + 1)) - room_y) / height
    flipped = tl.load(u + 2 * n) < flip
    is_gray = tl.load(u + 3 * n) < gray

    size = height * width
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < size
    centre_x = (2 * (pixel % width) + 1 - width) / (width * 1.0)
    centre_y = (2 * (pixel // width) + 1 - height) / (height * 1.0)
    x = offset_x + crop_width / width * centre_x
    x = _pixel_position(tl.where(flipped, -x, x), width)
    y = _pixel_position(offset_y + crop_height / height * centre_y, height)
    left, top = tl.floor(x), tl.floor(y)
    right_share, bottom_share = x - left, y - top
    column, row = left.to(tl.int32), top.to(tl.int32)
    corner = row * width + column
    has_right, has_bottom = inside & (column + 1 < width), inside & (row + 1 < height)

    source = images + image.to(tl.int64) * 3 * size
    target = augmented + image.to(tl.int64) * 3 * size
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
    """Interpolate one channel between four pixels; those beyond the edge have weight 0."""
    top_left = tl.load(channel + corner, mask=inside, other=0.0)
    top_right = tl.load(channel + corner + 1, mask=has_right, other=0.0)
    bottom_left = tl.load(channel + corner + width, mask=has_bottom, other=0.0)
    bottom_right = tl.load(channel + corner + width + 1, mask=has_right & has_bottom, other=0.0)
    top = top_left * (1 - right_share) + top_right * right_share
    bottom = bottom_left * (1 - right_share) + bottom_right * right_share
    return top * (1 - bottom_share) + bottom * bottom_share
