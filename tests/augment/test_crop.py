"""Crop with padding, and flip."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

from onpro.augment import CropAugmentation, Normalise, build
from onpro.augment.crop import CropParams, apply


def pad_crop_flip(image: Tensor, right: int, down: int, flip: bool, padding: int) -> Tensor:
    height, width = image.shape[-2:]
    padded = pad(image, [padding] * 4)
    top, left = padding + down, padding + right
    crop = padded[:, top : top + height, left : left + width]
    return crop.flip(-1) if flip else crop


def test_equals_padding_cropping_and_flipping_one_by_one(
    pixels: Tensor, generator: torch.Generator
) -> None:
    params = CropAugmentation().sample_params(len(pixels), generator)
    expected = [
        pad_crop_flip(image, int(right), int(down), bool(flip), 4)
        for image, right, down, flip in zip(
            pixels, params.right, params.down, params.flip, strict=True
        )
    ]
    assert torch.equal(apply(pixels, params, (0.0, 0.0, 0.0)), torch.stack(expected))


def test_an_unshifted_image_is_unchanged(pixels: Tensor) -> None:
    still = torch.zeros(len(pixels), dtype=torch.int64)
    assert torch.equal(apply(pixels, CropParams(still, still, still.bool()), (9.0,) * 3), pixels)


def test_padding_is_black_on_normalised_images(normalise: Normalise) -> None:
    images = torch.full((6, 3, 9, 9), 200, dtype=torch.uint8)
    on_pixels = CropAugmentation()(images / 255, torch.Generator().manual_seed(3))
    assert (on_pixels == 0).any()
    on_normalised = build("crop", normalise)(normalise(images), torch.Generator().manual_seed(3))
    torch.testing.assert_close(on_normalised, normalise(on_pixels))


def test_every_offset_and_flip_has_the_same_chance(generator: torch.Generator) -> None:
    n = 18_000
    params = CropAugmentation().sample_params(n, generator)
    for offsets in (params.right, params.down):
        shares = (offsets + 4).bincount(minlength=9) / n
        assert len(shares) == 9
        assert (shares - 1 / 9).abs().max() < 0.012
    assert abs(params.flip.float().mean() - 0.5) < 0.015
    both = torch.stack((params.right, params.down, params.flip)).float().corrcoef() - torch.eye(3)
    assert both.abs().max() < 0.04


@pytest.mark.parametrize("padding", [0, 2])
def test_padding_and_flip_can_be_chosen(padding: int, generator: torch.Generator) -> None:
    params = CropAugmentation(padding=padding, flip=0.0).sample_params(500, generator)
    assert params.right.abs().max() == params.down.abs().max() == padding
    assert not params.flip.any()
