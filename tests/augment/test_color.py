"""Grayscale and colour jitter against torchvision and kornia."""

import itertools
import math
from collections import Counter

import kornia.enhance as kornia
import pytest
import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as torchvision

from onpro.augment import ColorJitter
from onpro.augment.color import JitterParams, grayscale_where, jitter, shift_hue

NEUTRAL = (1.0, 1.0, 1.0, 0.0)


def single_step(step: int, factors: Tensor) -> JitterParams:
    """Parameters of one step with one factor per image."""
    n = len(factors)
    table = torch.tensor(NEUTRAL).repeat(n, 1)
    table[:, step] = factors
    return JitterParams(
        factors=table,
        order=torch.arange(4).expand(n, 4),
        chosen=torch.ones(n, dtype=torch.bool),
    )


def by_torchvision(image: Tensor, step: int, factor: float) -> Tensor:
    steps = (
        torchvision.adjust_brightness,
        torchvision.adjust_contrast,
        torchvision.adjust_saturation,
        torchvision.adjust_hue,
    )
    adjusted: Tensor = steps[step](image, factor)
    return adjusted


def by_kornia(images: Tensor, step: int, factors: Tensor) -> Tensor:
    steps = (
        kornia.adjust_brightness_accumulative,
        kornia.adjust_contrast_with_mean_subtraction,
        kornia.adjust_saturation_with_gray_subtraction,
        lambda x, turns: kornia.adjust_hue(x, turns * 2 * math.pi),
    )
    adjusted: Tensor = steps[step](images, factors)
    return adjusted


@pytest.fixture
def palette() -> Tensor:
    """Two images of every colour with channels 0, ¼, ½, ¾, 1: black, grays, ties, pure colours."""
    levels = torch.linspace(0, 1, 5)
    colours = torch.cartesian_prod(levels, levels, levels).T.reshape(3, 5, 25)
    return torch.stack((colours, colours.flip(-1)))


def test_grayscale_is_the_luminance_in_all_channels(pixels: Tensor) -> None:
    gray = grayscale_where(torch.tensor([True]), pixels)
    assert gray.shape == pixels.shape
    expected = torchvision.rgb_to_grayscale(pixels, num_output_channels=3)
    torch.testing.assert_close(gray, expected, rtol=0, atol=2e-4)


@pytest.mark.parametrize("step", range(4))
def test_each_step_as_in_torchvision_and_kornia(
    step: int, pixels: Tensor, palette: Tensor, generator: torch.Generator
) -> None:
    for images in (pixels, palette):
        factors = torch.rand(len(images), generator=generator)
        factors = factors - 0.5 if step == 3 else 0.4 + 1.2 * factors
        jittered = jitter(images, single_step(step, factors))
        torch.testing.assert_close(jittered, by_kornia(images, step, factors), rtol=0, atol=1e-5)
        expected = [by_torchvision(x, step, float(f)) for x, f in zip(images, factors, strict=True)]
        torch.testing.assert_close(jittered, torch.stack(expected), rtol=0, atol=2e-4)


@pytest.mark.parametrize("turns", [-0.5, -1 / 3, 0.0, 1 / 6, 0.5])
def test_hue_by_notable_angles(turns: float, palette: Tensor) -> None:
    shifted = shift_hue(palette, torch.tensor([turns]))
    expected = torchvision.adjust_hue(palette, turns)
    torch.testing.assert_close(shifted, expected, rtol=0, atol=1e-5)


def test_every_image_follows_its_own_order(generator: torch.Generator) -> None:
    orders = torch.tensor(list(itertools.permutations(range(4))))
    images = torch.rand((24, 3, 6, 7), generator=generator)
    params = ColorJitter(0.8, 0.8, 0.8, 0.4).sample_params(24, generator)
    jittered = jitter(images, JitterParams(params.factors, orders, params.chosen))
    for i in range(24):
        expected = images[i : i + 1]
        for step in orders[i].tolist():
            expected = by_kornia(expected, step, params.factors[i : i + 1, step])
        torch.testing.assert_close(jittered[i : i + 1], expected, rtol=0, atol=1e-5)


def test_one_set_of_parameters_may_serve_all_images(
    pixels: Tensor, generator: torch.Generator
) -> None:
    one = ColorJitter().sample_params(1, generator)
    n = len(pixels)
    repeated = JitterParams(one.factors.expand(n, 4), one.order.expand(n, 4), one.chosen.expand(n))
    torch.testing.assert_close(jitter(pixels, one), jitter(pixels, repeated))


def test_images_not_chosen_stay_exactly_as_they_are(generator: torch.Generator) -> None:
    images = torch.rand((400, 3, 2, 2), generator=generator)
    params = ColorJitter(probability=0.5).sample_params(400, generator)
    jittered = jitter(images, params)
    unchanged = (jittered == images).flatten(1).all(1)
    assert torch.equal(unchanged, ~params.chosen)
    assert 0.4 < params.chosen.float().mean() < 0.6


def test_parameters_cover_their_ranges_and_all_orders(generator: torch.Generator) -> None:
    n = 24_000
    params = ColorJitter(0.4, 0.3, 1.5, 0.1, probability=0.8).sample_params(n, generator)
    lowest, highest = torch.tensor([0.6, 0.7, 0.0, -0.1]), torch.tensor([1.4, 1.3, 2.5, 0.1])
    assert (params.factors >= lowest - 1e-6).all()
    assert (params.factors <= highest + 1e-6).all()
    share = (params.factors - lowest) / (highest - lowest)
    assert (share.mean(0) - 0.5).abs().max() < 0.01
    assert (share.var(0) - 1 / 12).abs().max() < 0.003
    assert abs(params.chosen.float().mean() - 0.8) < 0.012
    counts = Counter(tuple(order) for order in params.order.tolist())
    assert set(counts) == set(itertools.permutations(range(4)))
    assert all(abs(count / n - 1 / 24) < 0.008 for count in counts.values())


def test_calling_jitters_within_the_pixel_range(pixels: Tensor, generator: torch.Generator) -> None:
    jittered = ColorJitter(2.0, 2.0, 2.0, 0.5)(pixels, generator)
    assert jittered.min() >= 0
    assert jittered.max() <= 1
    assert not torch.equal(jittered, pixels)
