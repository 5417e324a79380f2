"""Pixels to normalised images and back."""

import pytest
import torch

from onpro.augment import Normalise
from onpro.errors import UserError


def test_subtracts_the_mean_and_divides_by_the_deviation(
    normalise: Normalise, generator: torch.Generator
) -> None:
    images = torch.randint(0, 256, (4, 3, 5, 6), generator=generator, dtype=torch.uint8)
    mean, std = torch.tensor(normalise.mean), torch.tensor(normalise.std)
    expected = (images / 255 - mean[:, None, None]) / std[:, None, None]
    normalised = normalise(images)
    assert normalised.dtype == torch.float32
    torch.testing.assert_close(normalised, expected)


def test_float_pixels_are_taken_as_zero_to_one(
    normalise: Normalise, generator: torch.Generator
) -> None:
    images = torch.randint(0, 256, (4, 3, 5, 6), generator=generator, dtype=torch.uint8)
    torch.testing.assert_close(normalise(images / 255), normalise(images))


def test_inverse_restores_every_pixel(normalise: Normalise) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    restored = normalise.inverse(normalise(images))
    assert torch.equal((restored * 255).round().to(torch.uint8), images)


def test_black_is_what_a_zero_pixel_becomes(normalise: Normalise) -> None:
    pixel = normalise(torch.zeros(1, 3, 1, 1, dtype=torch.uint8)).flatten()
    assert torch.equal(pixel, torch.tensor(normalise.black))


def test_mean_zero_and_deviation_one_change_nothing(generator: torch.Generator) -> None:
    images = torch.rand((2, 3, 4, 4), generator=generator)
    assert torch.equal(Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))(images), images)


def test_constants_first_used_in_inference_mode_serve_training() -> None:
    normalise = Normalise((0.123,), (0.456,))
    images = torch.ones(1, 1, 2, 2)
    with torch.inference_mode():
        normalise(images)
        normalise.inverse(images)
    scale = torch.ones((), requires_grad=True)
    torch.autograd.backward(normalise.inverse(normalise(images * scale)).sum())
    assert scale.grad is not None


@pytest.mark.parametrize(
    ("mean", "std"), [((0.5, 0.5), (0.2,)), ((0.5, 0.5), (0.2, 0.0)), ((0.5,), (-1.0,)), ((), ())]
)
def test_refuses_impossible_statistics(mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="positive standard deviation per channel"):
        Normalise(mean, std)
