"""Augmentations by name."""

import pytest
import torch
from torch import Tensor

from onpro.augment import NAMES, Normalise, OnPixels, ScrAugmentation, build
from onpro.errors import UserError

SPELLINGS = (*NAMES, "scr+ocm", "dvc+ocm", "crop+ocm")


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("shape", [(5, 3, 8, 8), (1, 3, 32, 32), (3, 3, 7, 12), (0, 3, 8, 8)])
def test_keeps_shape_and_kind_and_leaves_the_images_alone(
    name: str, shape: tuple[int, ...], normalise: Normalise, generator: torch.Generator
) -> None:
    images = normalise(torch.rand(shape, generator=generator))
    before = images.clone()
    augmented = build(name, normalise)(images, generator)
    assert augmented.shape == images.shape
    assert augmented.dtype == torch.float32
    assert augmented.isfinite().all()
    assert torch.equal(images, before)


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_generator_decides_everything(name: str, normalise: Normalise, pixels: Tensor) -> None:
    images = normalise(pixels)
    augmentation = build(name, normalise)
    generator = torch.Generator().manual_seed(7)
    first, second = augmentation(images, generator), augmentation(images, generator)
    again = build(name, normalise)(images, torch.Generator().manual_seed(7))
    assert torch.equal(first, again)
    assert torch.equal(first, second) == (name == "none")


@pytest.mark.parametrize("name", ["scr", "dvc", "crop"])
def test_normalised_images_are_augmented_like_their_pixels(
    name: str, normalise: Normalise, pixels: Tensor
) -> None:
    raw = Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    expected = build(name, raw)(pixels, torch.Generator().manual_seed(7))
    augmented = build(name, normalise)(normalise(pixels), torch.Generator().manual_seed(7))
    torch.testing.assert_close(normalise.inverse(augmented), expected, rtol=0, atol=1e-5)


def test_on_pixels_gives_the_augmentation_pixels(normalise: Normalise, pixels: Tensor) -> None:
    def invert(images: Tensor, generator: torch.Generator) -> Tensor:
        return 1 - images

    inverted = OnPixels(invert, normalise)(normalise(pixels), torch.Generator())
    torch.testing.assert_close(inverted, normalise(1 - pixels), rtol=1e-5, atol=1e-5)


def test_joined_names_are_applied_from_left_to_right(normalise: Normalise, pixels: Tensor) -> None:
    images, generator = normalise(pixels), torch.Generator().manual_seed(7)
    expected = OnPixels(ScrAugmentation(), normalise)(images, generator)
    expected = build("ocm", normalise)(expected, generator)
    joined = build("scr+ocm", normalise)(images, torch.Generator().manual_seed(7))
    assert torch.equal(joined, expected)


@pytest.mark.parametrize("name", ["ocn", "scr+ocn", "scr+", ""])
def test_unknown_names_are_refused(name: str, normalise: Normalise) -> None:
    with pytest.raises(UserError, match="there is no augmentation"):
        build(name, normalise)
