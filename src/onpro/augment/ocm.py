"""The augmentation of OCM and OnPro: horizontal flip, grayscale, resized crop."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.color import grayscale_where
from onpro.augment.geometry import (
    CANDIDATES,
    crop_positions,
    image_sides,
    resample,
    sample_crop_sides,
    uniform_integers,
)


@dataclass(frozen=True, eq=False)
class OcmParams:
    """Parameters of n images."""

    fraction: Tensor
    """(2, n): width and height of the crop as fractions of the image's."""
    offset: Tensor
    """(2, n): x and y of the crop's centre, from −1 (left, top) to 1 (right, bottom)."""
    flip: Tensor
    """(n,): whether the image is flipped before it is cropped."""
    gray: Tensor
    """(n,): whether the image is converted to grayscale."""


def apply(images: Tensor, params: OcmParams) -> Tensor:
    """Flip, convert to grayscale, crop and resize images (n, 3, h, w) in one resampling.

    The flip only negates the columns' coordinates. Resampling is linear and the same in all
    channels, so grayscale may come after it.
    """
    height, width = images.shape[-2:]
    x = crop_positions(width, params.fraction[0], params.offset[0])
    x = torch.where(params.flip[:, None], -x, x)
    y = crop_positions(height, params.fraction[1], params.offset[1])
    return grayscale_where(params.gray, resample(images, x, y))


@dataclass(frozen=True)
class OcmAugmentation:
    """T_ocm, on normalised images; parameters are per image.

    Defaults are those of the official code.
    """

    area: tuple[float, float] = (0.3, 1.0)
    """Range of the crop's area as a fraction of the image's."""
    flip: float = 0.5
    """Probability of a horizontal flip."""
    gray: float = 0.25
    """Probability of grayscale."""
    fused: bool = False
    """Whether to use a single kernel on a GPU; results agree up to rounding."""

    def sample_params(
        self, n: int, height: int, width: int, generator: torch.Generator
    ) -> OcmParams:
        """Sample parameters for n images; crops lie inside the image, at steps of half a pixel."""
        whole = image_sides(height, width, generator.device)
        sides = sample_crop_sides(n, height, width, self.area, generator)
        room = whole - sides
        u = torch.rand((4, n), generator=generator, device=generator.device)
        return OcmParams(
            fraction=sides / whole,
            offset=(uniform_integers(u[:2], 2 * room + 1) - room) / whole,
            flip=u[2] < self.flip,
            gray=u[3] < self.gray,
        )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, 3, h, w)."""
        n, _, height, width = images.shape
        if self.fused and images.is_cuda:
            from onpro.augment.fused_ocm import fused_ocm

            u_sides = torch.rand((2, n, CANDIDATES), generator=generator, device=images.device)
            u_rest = torch.rand((4, n), generator=generator, device=images.device)
            return fused_ocm(
                images, u_sides, u_rest, area=self.area, flip=self.flip, gray=self.gray
            )
        return apply(images, self.sample_params(n, height, width, generator))
