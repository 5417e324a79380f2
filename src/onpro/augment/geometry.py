"""Crops that are resized to the whole image: how they are drawn, how they are sampled.

Coordinates are normalised: the image reaches from −1 to 1, whatever its size in pixels, and a
pixel's value belongs to its centre.
"""

import functools
import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from onpro.augment.constants import constant

CANDIDATES = 10
"""Crops drawn for each image, of which the first that fits is taken (official code)."""
MAX_ASPECT = 4 / 3
"""Crops are at most this much wider than high, or higher than wide."""


def draw_crop_sides(
    n: int, height: int, width: int, area: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Widths (row 0) and heights (row 1) of n crops, in whole pixels, (2, n).

    The area is a uniform fraction of the image's, the aspect ratio log-uniform in [3/4, 4/3]. A
    crop that exceeds the image is drawn again; rather than waiting for the outcome, all
    candidates of all images are drawn at once and the first that fits is taken. Should none
    fit, the crop is the whole image.
    """
    device = generator.device
    smallest, largest = (fraction * height * width for fraction in area)
    whole = image_sides(height, width, device)[:, :, None]
    u = torch.rand((2, n, CANDIDATES), generator=generator, device=device)
    root_area = u[0].mul(largest - smallest).add(smallest).sqrt()
    log_aspect = constant((math.log(MAX_ASPECT), -math.log(MAX_ASPECT)), device)
    root_aspect = ((u[1] - 0.5) * log_aspect[:, None, None]).exp()
    sides = (root_area * root_aspect).round().clamp(min=1)
    exceeds = (sides > whole).any(0)
    first_that_fits = exceeds.to(torch.uint8).argmin(1, keepdim=True)
    sides = torch.where(exceeds, whole, sides)
    return sides.gather(2, first_that_fits.expand(2, -1, -1)).squeeze(2)


def image_sides(height: int, width: int, device: torch.device) -> Tensor:
    """Width and height, in this order, as a column (2, 1)."""
    return constant((width, height), device)[:, None]


def draw_integers(u: Tensor, count: Tensor) -> Tensor:
    """Uniform integers 0 … count − 1 (as floats) from numbers u uniform in [0, 1)."""
    return (u * count).floor()


def crop_positions(side: int, fraction: Tensor, offset: Tensor) -> Tensor:
    """Where each output pixel of an axis looks in the input: fraction·centre + offset.

    Args:
        side: Pixels along the axis.
        fraction: Part of the axis the crop covers, (n,).
        offset: Centre of the crop, (n,).

    Returns:
        Positions (n, side).
    """
    centres = _pixel_centres(side, fraction.device)
    return torch.addcmul(offset[:, None], fraction[:, None], centres)


@functools.cache
def _pixel_centres(side: int, device: torch.device) -> Tensor:
    return constant(tuple(place / side for place in range(1 - side, side, 2)), device)


def sample(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """The images (n, c, h, w) read at columns x (n, w) and rows y (n, h), bilinearly.

    Positions between the outermost pixel centres and the edge see the image reflected.
    """
    height, width = y.shape[1], x.shape[1]
    columns = x[:, None, :].expand(-1, height, -1)
    rows = y[:, :, None].expand(-1, -1, width)
    grid = torch.stack((columns, rows), dim=-1)
    return grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
