"""Grayscale and colour jitter, with factors and order of the steps per image."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.constants import constant, per_channel

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
"""Indices of the jitter's steps in `JitterParams`."""


def luminance(images: Tensor) -> Tensor:
    """Return 0.299·red + 0.587·green + 0.114·blue of images (n, 3, h, w) as (n, 1, h, w)."""
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return (0.299 * red).add(green, alpha=0.587).add(blue, alpha=0.114)


def grayscale_where(chosen: Tensor, images: Tensor) -> Tensor:
    """Convert the chosen images to grayscale; `chosen` is (n,), or (1,) for all images."""
    return torch.where(chosen[:, None, None, None], luminance(images), images)


def shift_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Shift the hue of images, keeping saturation and value.

    Args:
        images: (n, 3, h, w) RGB pixels in [0, 1].
        turns: (n,) shift in turns of the colour circle, or (1,) for all images.
    """
    brightest, channel = images.max(dim=1, keepdim=True)
    spread = brightest - images.amin(dim=1, keepdim=True)
    # Hue in sixths of a turn: 0, 2 or 4 if red, green or blue is the brightest channel, plus the
    # normalised difference of the other two. Gray has spread 0, so its hue does not matter.
    imbalance = (images.roll(-1, dims=1) - images.roll(-2, dims=1)).gather(1, channel)
    hue = imbalance / spread.clamp(min=torch.finfo(images.dtype).tiny) + 2 * channel
    hue = hue + 6 * turns[:, None, None, None]
    # A channel is at its maximum within 1/6 turn of its own hue, at its minimum beyond 2/6, and
    # linear in between.
    phase = (hue + per_channel((5.0, 3.0, 1.0), images.device)).remainder(6)
    missing = torch.minimum(phase, 4 - phase).clamp(0, 1)
    return torch.addcmul(brightest, spread, missing, value=-1)


@dataclass(frozen=True, eq=False)
class JitterParams:
    """Jitter parameters of n images, or one set for all images if n is 1."""

    factors: Tensor
    """(n, 4): factors of brightness, contrast and saturation, and hue shift in turns."""
    order: Tensor
    """(n, 4): indices of the four steps, in the order in which they are applied."""
    chosen: Tensor
    """(n,): whether the image is jittered."""


def jitter(images: Tensor, params: JitterParams) -> Tensor:
    """Adjust brightness, contrast, saturation and hue of pixels (n, 3, h, w) in [0, 1].

    Brightness, contrast and saturation blend the image with black, its mean luminance and its
    luminance. One blend computes any of the three, a different one for each image, and a factor of
    1 changes nothing. So all images share one hue shift, between three blends before it and three
    after it, whatever their order of steps.
    """
    hue_step = (params.order == HUE).to(torch.uint8).argmax(1, keepdim=True)
    step_index = torch.arange(4, device=images.device)
    factors = params.factors.gather(1, params.order)
    before = factors.masked_fill(step_index >= hue_step, 1)
    after = factors.masked_fill(step_index <= hue_step, 1)

    factor = torch.cat((before[:, :3], after[:, 1:]), dim=1)
    kind = torch.cat((params.order[:, :3], params.order[:, 1:]), dim=1)
    rest = 1 - factor
    weights = torch.stack((factor, rest * (kind == CONTRAST), rest * (kind == SATURATION)))
    weights = weights[..., None, None, None]  # (3 weights, n images, 6 blends, 1, 1, 1)

    jittered = images
    for step in (0, 1, 2):
        jittered = _blend(jittered, *weights[:, :, step])
    jittered = shift_hue(jittered, params.factors[:, HUE])
    for step in (3, 4, 5):
        jittered = _blend(jittered, *weights[:, :, step])
    return torch.where(params.chosen[:, None, None, None], jittered, images)


def _blend(images: Tensor, own: Tensor, mean: Tensor, gray: Tensor) -> Tensor:
    """Return own·image + mean·(mean luminance) + gray·luminance, clamped to [0, 1]."""
    grays = luminance(images)
    added = torch.addcmul(mean * grays.mean((-2, -1), keepdim=True), gray, grays)
    return torch.addcmul(added, own, images).clamp(0, 1)


@dataclass(frozen=True)
class ColorJitter:
    """Randomly adjust brightness, contrast, saturation and hue, in random order.

    Pixels are in [0, 1].
    """

    brightness: float = 0.4
    """Largest deviation of the brightness factor from 1."""
    contrast: float = 0.4
    """Largest deviation of the contrast factor from 1."""
    saturation: float = 0.4
    """Largest deviation of the saturation factor from 1."""
    hue: float = 0.1
    """Largest shift of the hue, in turns."""
    probability: float = 1.0
    """Probability that an image is jittered."""

    def sample_params(self, n: int, generator: torch.Generator) -> JitterParams:
        """Sample independent parameters for n images."""
        device = generator.device
        spans = (self.brightness, self.contrast, self.saturation)
        lowest = (*(max(0.0, 1 - s) for s in spans), -self.hue)
        highest = (*(1 + s for s in spans), self.hue)
        u = torch.rand((n, 9), generator=generator, device=device)
        return JitterParams(
            factors=torch.lerp(constant(lowest, device), constant(highest, device), u[:, :4]),
            order=u[:, 4:8].argsort(dim=1),
            chosen=u[:, 8] < self.probability,
        )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Augment images (n, 3, h, w)."""
        return jitter(images, self.sample_params(len(images), generator))
