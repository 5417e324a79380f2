"""Grayscale and colour jitter; factors and order of the steps may differ for every image."""

from dataclasses import dataclass

import torch
from torch import Tensor

from onpro.augment.constants import constant, per_channel

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
"""The steps of the jitter, as they are numbered in `JitterDraw`."""


def luminance(images: Tensor) -> Tensor:
    """0.299·red + 0.587·green + 0.114·blue of images (n, 3, h, w), as (n, 1, h, w)."""
    red, green, blue = images[:, 0:1], images[:, 1:2], images[:, 2:3]
    return (0.299 * red).add(green, alpha=0.587).add(blue, alpha=0.114)


def grayscale_where(chosen: Tensor, images: Tensor) -> Tensor:
    """Luminance in all channels of the chosen images (n,), of all or none if chosen is (1,)."""
    return torch.where(chosen[:, None, None, None], luminance(images), images)


def shift_hue(images: Tensor, turns: Tensor) -> Tensor:
    """Turns the hue of images (n, 3, h, w) of 0…1 and keeps their saturation and value.

    Args:
        images: Red, green, blue.
        turns: Shift in full turns of the colour circle, (n,), or (1,) for all images alike.
    """
    brightest, channel = images.max(dim=1, keepdim=True)
    spread = brightest - images.amin(dim=1, keepdim=True)
    # Hue in sixths of a turn: red is 0, green 2, blue 4, moved by how far the channel that comes
    # next in the circle outweighs the one after it. Gray has spread 0: any hue will do.
    imbalance = (images.roll(-1, dims=1) - images.roll(-2, dims=1)).gather(1, channel)
    hue = imbalance / spread.clamp(min=torch.finfo(images.dtype).tiny) + 2 * channel
    hue = hue + 6 * turns[:, None, None, None]
    # Each channel is full within one sixth of its own hue, empty beyond two, linear between.
    phase = (hue + per_channel((5.0, 3.0, 1.0), images.device)).remainder(6)
    missing = torch.minimum(phase, 4 - phase).clamp(0, 1)
    return torch.addcmul(brightest, spread, missing, value=-1)


@dataclass(frozen=True, eq=False)
class JitterDraw:
    """What one jitter does to each of n images, or to all alike where n is 1."""

    factors: Tensor
    """(n, 4): brightness, contrast, saturation (1 keeps them), hue shift in turns (0 keeps it)."""
    order: Tensor
    """(n, 4): the four steps, numbered as the columns of the factors, first to last."""
    chosen: Tensor
    """(n,): whether the image is jittered at all."""


def jitter(images: Tensor, draw: JitterDraw) -> Tensor:
    """Brightness, contrast, saturation and hue of pixels (n, 3, h, w) of 0…1, in the drawn order.

    Brightness, contrast and saturation each mix the image with something: black, its mean
    luminance, its luminance. One routine does any of them, for every image another one, and
    nothing at factor 1. So images whose hue comes at different times still share one hue shift:
    before it go the mixes drawn before it, after it the others.
    """
    when_hue = (draw.order == HUE).to(torch.uint8).argmax(1, keepdim=True)
    time = torch.arange(4, device=images.device)
    factors = draw.factors.gather(1, draw.order)
    before = factors.masked_fill(time >= when_hue, 1)
    after = factors.masked_fill(time <= when_hue, 1)

    factor = torch.cat((before[:, :3], after[:, 1:]), dim=1)
    kind = torch.cat((draw.order[:, :3], draw.order[:, 1:]), dim=1)
    rest = 1 - factor
    mixes = torch.stack((factor, rest * (kind == CONTRAST), rest * (kind == SATURATION)))
    mixes = mixes[..., None, None, None]  # 3 weights, n images, 6 mixes, to broadcast over images

    jittered = images
    for step in (0, 1, 2):
        jittered = _mix(jittered, *mixes[:, :, step])
    jittered = shift_hue(jittered, draw.factors[:, HUE])
    for step in (3, 4, 5):
        jittered = _mix(jittered, *mixes[:, :, step])
    return torch.where(draw.chosen[:, None, None, None], jittered, images)


def _mix(images: Tensor, own: Tensor, mean: Tensor, gray: Tensor) -> Tensor:
    """own·image + mean·(mean luminance) + gray·luminance, within 0…1; weights (n, 1, 1, 1)."""
    shade = luminance(images)
    added = torch.addcmul(mean * shade.mean((-2, -1), keepdim=True), gray, shade)
    return torch.addcmul(added, own, images).clamp(0, 1)


@dataclass(frozen=True)
class ColorJitter:
    """Random brightness, contrast, saturation and hue, in random order, of pixels of 0…1."""

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

    def draw(self, n: int, generator: torch.Generator) -> JitterDraw:
        """Parameters for n images, each with factors and an order of its own."""
        device = generator.device
        spans = (self.brightness, self.contrast, self.saturation)
        lowest = (*(max(0.0, 1 - s) for s in spans), -self.hue)
        highest = (*(1 + s for s in spans), self.hue)
        u = torch.rand((n, 9), generator=generator, device=device)
        return JitterDraw(
            factors=torch.lerp(constant(lowest, device), constant(highest, device), u[:, :4]),
            order=u[:, 4:8].argsort(dim=1),
            chosen=u[:, 8] < self.probability,
        )

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """A new variation of each image (n, 3, h, w)."""
        return jitter(images, self.draw(len(images), generator))
