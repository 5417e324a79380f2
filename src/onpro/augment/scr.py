"""The augmentations of SCR and DVC: resized crop, flip, colour jitter, grayscale."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from onpro.augment.color import ColorJitter, JitterParams, grayscale_where, jitter
from onpro.augment.geometry import (
    crop_positions,
    image_sides,
    resample,
    sample_crop_sides,
    uniform_integers,
)


@dataclass(frozen=True, eq=False)
class ScrParams:
    """Parameters of n images, or one set for all images if n is 1."""

    corner: Tensor
    """(2, n): column and row of the crop's first pixel, integers as floats."""
    sides: Tensor
    """(2, n): width and height of the crop in pixels, integers as floats."""
    flip: Tensor
    """(n,): whether the crop is flipped."""
    jitter: JitterParams
    """Parameters of the colour jitter."""
    gray: Tensor
    """(n,): whether the result is converted to grayscale."""


def apply(images: Tensor, params: ScrParams) -> Tensor:
    """Crop and resize, flip, jitter, convert to grayscale; pixels (n, 3, h, w) in [0, 1]."""
    height, width = images.shape[-2:]
    x = _box_positions(width, params.corner[0], params.sides[0])
    x = torch.where(params.flip[:, None], x.flip(1), x)
    y = _box_positions(height, params.corner[1], params.sides[1])
    n = len(images)
    views = resample(images, x.expand(n, -1), y.expand(n, -1))
    return grayscale_where(params.gray, jitter(views, params.jitter))


def _box_positions(side: int, start: Tensor, length: Tensor) -> Tensor:
    """Return coordinates (n, side) that resize a box without interpolating beyond its edge."""
    centre = (2 * start + length - side) / side
    to_outermost_pixel = (length - 1) / side
    return crop_positions(side, length / side, centre).clamp(
        (centre - to_outermost_pixel)[:, None], (centre + to_outermost_pixel)[:, None]
    )


@dataclass(frozen=True)
class ScrAugmentation:
    """T_scr, on pixels in [0, 1]; parameters are per image.

    Defaults are those of the official code.
    """

    area: tuple[float, float] = (0.2, 1.0)
    """Range of the crop's area as a fraction of the image's."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    jitter: ColorJitter = field(default_factory=lambda: ColorJitter(probability=0.8))
    """Colour jitter: 0.4 brightness, 0.4 contrast, 0.4 saturation, 0.1 hue, probability 0.8."""
    gray: float = 0.2
    """Probability of grayscale."""

    def sample_params(
        self, n: int, height: int, width: int, generator: torch.Generator
    ) -> ScrParams:
        """Sample parameters for n images."""
        sides = sample_crop_sides(n, height, width, self.area, generator)
        room = image_sides(height, width, generator.device) - sides
        u = torch.rand((4, n), generator=generator, device=generator.device)
        return ScrParams(
            corner=uniform_integers(u[:2], room + 1),
            sides=sides,
            flip=u[2] < self.flip,
            jitter=self.jitter.sample_params(n, generator),
            gray=u[3] < self.gray,
        )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, 3, h, w)."""
        n, _, height, width = images.shape
        return apply(images, self.sample_params(n, height, width, generator))


@dataclass(frozen=True)
class DvcAugmentation:
    """T_dvc, on pixels in [0, 1]: as T_scr, but always jittered, and parameters are per batch.

    The official code applies transforms for single images to a batch.
    """

    steps: ScrAugmentation = field(
        default_factory=lambda: ScrAugmentation(jitter=ColorJitter(probability=1.0))
    )
    """The steps, whose parameters are sampled once per batch."""

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, 3, h, w)."""
        height, width = images.shape[-2:]
        return apply(images, self.steps.sample_params(1, height, width, generator))
