"""Flip, grayscale and resized crop of OCM and OnPro."""

import math
import random

import pytest
import torch
from torch import Tensor

from onpro.augment import OcmAugmentation, rotations
from onpro.augment.color import grayscale_where
from onpro.augment.ocm import OcmParams, apply
from tests.golden.values import Golden


def no(n: int) -> Tensor:
    return torch.zeros(n, dtype=torch.bool)


def whole(n: int, *, flip: Tensor | None = None, gray: Tensor | None = None) -> OcmParams:
    """Parameters that crop nothing."""
    return OcmParams(
        fraction=torch.ones(2, n),
        offset=torch.zeros(2, n),
        flip=no(n) if flip is None else flip,
        gray=no(n) if gray is None else gray,
    )


@pytest.mark.golden("onpro/crop_*")
def test_crop_as_in_the_official_code(golden: Golden) -> None:
    rows = golden["onpro/crop_params"].T
    params = OcmParams(fraction=rows[:2], offset=rows[2:], flip=no(5), gray=no(5))
    cropped = apply(golden["onpro/crop_in"], params)
    torch.testing.assert_close(cropped, golden["onpro/crop_out"], rtol=1e-5, atol=2e-5)


@pytest.mark.golden("onpro/crop_in", "onpro/gray_out")
def test_grayscale_as_in_the_official_code(golden: Golden) -> None:
    gray = grayscale_where(torch.tensor([True]), golden["onpro/crop_in"])
    torch.testing.assert_close(gray, golden["onpro/gray_out"])
    gray = apply(golden["onpro/crop_in"].float(), whole(5, gray=~no(5))).double()
    torch.testing.assert_close(gray, golden["onpro/gray_out"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (18, 12), (7, 15)])
def test_equals_flip_then_gray_then_crop(
    height: int, width: int, generator: torch.Generator
) -> None:
    n = 64
    images = torch.randn((n, 3, height, width), generator=generator)
    params = OcmAugmentation().sample_params(n, height, width, generator)
    assert params.flip.any()
    assert params.gray.any()

    sequence = torch.where(params.flip[:, None, None, None], images.flip(-1), images)
    sequence = grayscale_where(params.gray, sequence)
    sequence = apply(sequence, OcmParams(params.fraction, params.offset, flip=no(n), gray=no(n)))
    torch.testing.assert_close(apply(images, params), sequence, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("side", [8, 32, 64])
def test_flip_and_whole_image_are_exact(side: int, generator: torch.Generator) -> None:
    images = torch.randn((3, 3, side, side), generator=generator)
    assert torch.equal(apply(images, whole(3)), images)
    assert torch.equal(apply(images, whole(3, flip=~no(3))), images.flip(-1))


def test_flip_and_whole_image_of_any_shape(generator: torch.Generator) -> None:
    images = torch.randn((3, 3, 10, 21), generator=generator)
    torch.testing.assert_close(apply(images, whole(3)), images, rtol=0, atol=1e-5)
    flipped = apply(images, whole(3, flip=~no(3)))
    torch.testing.assert_close(flipped, images.flip(-1), rtol=0, atol=1e-5)


def test_crop_looks_where_it_says() -> None:
    """On a ramp of column and row numbers the crop's values are the places it looked at."""
    height, width = 10, 20
    columns = torch.arange(width).float().expand(height, width)
    rows = torch.arange(height).float()[:, None].expand(height, width)
    images = torch.stack((columns, rows, rows))[None]
    params = OcmParams(
        fraction=torch.tensor([[10 / 20], [5 / 10]]),
        offset=torch.tensor([[(2 * 7 + 10 - 20) / 20], [(2 * 2 + 5 - 10) / 10]]),
        flip=no(1),
        gray=no(1),
    )
    cropped = apply(images, params)[0]
    expected_columns = 7 + (torch.arange(width) + 0.5) / 2 - 0.5
    expected_rows = 2 + (torch.arange(height) + 0.5) / 2 - 0.5
    torch.testing.assert_close(cropped[0], expected_columns.expand(height, width))
    torch.testing.assert_close(cropped[1], expected_rows[:, None].expand(height, width))


@pytest.mark.parametrize(("height", "width"), [(32, 32), (24, 40)])
def test_crops_are_whole_pixels_inside_the_image_at_half_pixel_steps(
    height: int, width: int, generator: torch.Generator
) -> None:
    params = OcmAugmentation().sample_params(20_000, height, width, generator)
    whole_image = torch.tensor([[width], [height]]).double()
    sides = params.fraction.double() * whole_image
    steps = params.offset.double() * whole_image
    torch.testing.assert_close(sides, sides.round(), rtol=0, atol=1e-5)
    torch.testing.assert_close(steps, steps.round(), rtol=0, atol=1e-5)
    sides, steps, room = sides.round(), steps.round(), whole_image - sides.round()
    assert (room >= 0).all()
    assert (steps.abs() <= room).all()
    assert (steps % 2 == 1).any()
    assert (steps % 2 == 0).any()

    area = sides.prod(0) / (height * width)
    assert area.min() > 0.27
    assert area.min() < 0.33
    assert area.max() > 0.95
    aspect = (sides[0] / sides[1]).masked_fill((room == 0).all(0), 1)
    assert aspect.min() > 0.69
    assert aspect.max() < 1.45

    # Every place has the same chance: compare with the exact mean and variance given the room.
    expected_variance = (((2 * room + 1) ** 2 - 1) / 12).mean(1)
    assert (steps.mean(1).abs() < 4 * (expected_variance / 20_000).sqrt()).all()
    assert ((steps.square().mean(1) / expected_variance - 1).abs() < 0.05).all()


def crops_one_by_one(count: int, side: int) -> list[tuple[int, int]]:
    """The specification's words as a loop: sample again until the crop fits."""
    source = random.Random(5)
    crops: list[tuple[int, int]] = []
    while len(crops) < count:
        area = source.uniform(0.3, 1.0) * side * side
        ratio = math.exp(source.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if w <= side and h <= side:
            crops.append((w, h))
    return crops


def test_crop_sides_are_distributed_as_if_redrawn_until_they_fit(
    generator: torch.Generator,
) -> None:
    count, side = 20_000, 32
    fraction = OcmAugmentation().sample_params(count, side, side, generator).fraction
    sides = (fraction * side).round().long()
    expected = torch.tensor(crops_one_by_one(count, side)).T
    for values, reference in ((sides[0], expected[0]), (sides[1], expected[1])):
        share = values.bincount(minlength=side + 1).cumsum(0) / count
        reference_share = reference.bincount(minlength=side + 1).cumsum(0) / count
        assert (share - reference_share).abs().max() < 0.02
    aspects = (sides[0] / sides[1]).log(), (expected[0] / expected[1]).log()
    assert (aspects[0].std() / aspects[1].std() - 1).abs() < 0.03


def test_crops_that_never_fit_become_the_whole_image(generator: torch.Generator) -> None:
    params = OcmAugmentation(area=(0.9, 1.0)).sample_params(50, 4, 40, generator)
    assert torch.equal(params.fraction, torch.ones(2, 50))
    assert torch.equal(params.offset, torch.zeros(2, 50))


def test_shares_of_flip_and_gray(generator: torch.Generator) -> None:
    n = 20_000
    params = OcmAugmentation().sample_params(n, 32, 32, generator)
    flip, gray = params.flip.float(), params.gray.float()
    assert abs(flip.mean() - 0.5) < 0.015
    assert abs(gray.mean() - 0.25) < 0.015
    assert abs((flip * gray).mean() - 0.125) < 0.012
    never = OcmAugmentation(area=(0.6, 1.0), flip=0.0, gray=0.0).sample_params(n, 32, 32, generator)
    assert not never.flip.any()
    assert not never.gray.any()
    assert never.fraction.prod(0).min() > 0.55
    always = OcmAugmentation(flip=1.0, gray=1.0).sample_params(n, 32, 32, generator)
    assert always.flip.all()
    assert always.gray.all()


def test_parameters_of_images_and_axes_are_independent(generator: torch.Generator) -> None:
    params = OcmAugmentation().sample_params(20_000, 32, 32, generator)
    rows = torch.cat(
        (params.fraction.prod(0, keepdim=True), params.offset, params.flip[None].float())
    )
    assert (rows.corrcoef() - torch.eye(4)).abs().max() < 0.04
    for row in rows:
        assert abs(torch.stack((row[:-1], row[1:])).corrcoef()[0, 1]) < 0.04


def test_the_rotated_copies_of_an_image_are_cropped_differently(
    generator: torch.Generator,
) -> None:
    image = torch.randn((1, 3, 64, 64), generator=generator)
    copies = rotations(image, 16)
    params = OcmAugmentation().sample_params(len(copies), 64, 64, generator)
    assert len(set(zip(*params.fraction.tolist(), *params.offset.tolist(), strict=True))) == 16
    same_image = OcmAugmentation()(image.expand(16, -1, -1, -1), generator)
    assert len({tuple(view) for view in same_image.flatten(1).tolist()}) == 16
