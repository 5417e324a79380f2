"""Random resized crops: sampling their size, resampling the images.

Coordinates are those of `grid_sample` with `align_corners=False`: the image spans [−1, 1] along
each axis, and pixels are points at their centres.
"""

import functools
import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from onpro.augment.constants import constant

CANDIDATES = 10
"""Number of candidate crops per image, of which the first that fits is used (official code)."""
MAX_ASPECT = 4 / 3
"""Largest ratio of a crop's longer to its shorter side."""


def sample_crop_sides(
    n: int, height: int, width: int, area: tuple[float, float], generator: torch.Generator
) -> Tensor:
    """Sample widths (row 0) and heights (row 1) of n crops in whole pixels, (2, n).

    The area is a uniform fraction of the image's, the aspect ratio log-uniform in [3/4, 4/3]. A
    crop larger than the image is rejected. To avoid a host–device sync per rejection, all
    candidates are sampled at once, and the first that fits is used, or the whole image if none
    does.
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
    """Return width and height, in this order, as a column (2, 1)."""
    return constant((width, height), device)[:, None]


def uniform_integers(u: Tensor, count: Tensor) -> Tensor:
    """Map u, uniform in [0, 1), to uniform integers 0 … count − 1 (as floats)."""
    return (u * count).floor()


def crop_positions(side: int, fraction: Tensor, offset: Tensor) -> Tensor:
    """Return the input coordinate of each output pixel of an axis: fraction·centre + offset.

    Args:
        side: Number of pixels along the axis.
        fraction: (n,) share of the axis that the crop covers.
        offset: (n,) centre of the crop.

    Returns:
        (n, side) coordinates.
    """
    centres = _pixel_centres(side, fraction.device)
    return torch.addcmul(offset[:, None], fraction[:, None], centres)


@functools.cache
def _pixel_centres(side: int, device: torch.device) -> Tensor:
    return constant(tuple(place / side for place in range(1 - side, side, 2)), device)


def resample(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Resample images (n, c, h, w) bilinearly at columns x (n, w) and rows y (n, h).

    Coordinates between the outermost pixel centres and the edge use reflection padding.
    """
    height, width = y.shape[1], x.shape[1]
    columns = x[:, None, :].expand(-1, height, -1)
    rows = y[:, :, None].expand(-1, -1, width)
    grid = torch.stack((columns, rows), dim=-1)
    return grid_sample(
        images, grid, mode="bilinear", padding_mode="reflection", align_corners=False
    )
