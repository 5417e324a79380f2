"""Rotations that make new classes."""

import pytest
import torch

from onpro.augment import (
    check_rotation,
    interleaved_labels,
    interleaved_rotations,
    rotated_labels,
    rotations,
)
from onpro.errors import UserError
from tests.golden.values import Golden


@pytest.mark.golden("onpro/rot16_*")
def test_16_rotations_as_in_the_official_code(golden: Golden) -> None:
    assert torch.equal(rotations(golden["onpro/rot16_in"], 16), golden["onpro/rot16_out"])


@pytest.mark.golden("onpro/rot16_*")
def test_4_rotations_are_the_blocks_of_the_16_with_untouched_halves(golden: Golden) -> None:
    n = len(golden["onpro/rot16_in"])
    expected = golden["onpro/rot16_out"].view(4, 4, n, 3, 8, 8)[:, 0].flatten(0, 1)
    assert torch.equal(rotations(golden["onpro/rot16_in"], 4), expected)


@pytest.mark.parametrize("blocks", [1, 4, 16])
def test_rotations_are_distinct_and_start_with_the_images(
    blocks: int, generator: torch.Generator
) -> None:
    images = torch.randn((3, 3, 6, 6), generator=generator)
    rotated = rotations(images, blocks)
    assert rotated.shape == (3 * blocks, 3, 6, 6)
    assert torch.equal(rotated[:3], images)
    assert len({tuple(image) for image in rotated.flatten(1).tolist()}) == 3 * blocks
    assert torch.equal(
        rotated.flatten(1).sort(1).values, images.flatten(1).sort(1).values.repeat(blocks, 1)
    )


def test_every_block_has_classes_of_its_own() -> None:
    labels = torch.tensor([3, 0, 9])
    expected = [y + 10 * q for q in range(16) for y in (3, 0, 9)]
    assert rotated_labels(labels, 16, 10).tolist() == expected
    assert rotated_labels(labels, 16, 10).dtype == torch.int64
    assert torch.equal(rotated_labels(labels, 1, 10), labels)


def test_labels_of_mixed_images_stay_fractional() -> None:
    rotated = rotated_labels(torch.tensor([1.25, 7.0]), 4, 10)
    assert rotated.tolist() == [1.25, 7.0, 11.25, 17.0, 21.25, 27.0, 31.25, 37.0]


@pytest.mark.golden("baselines/pass.rotation.*")
def test_rotations_of_pass_are_interleaved(golden: Golden) -> None:
    case = golden.group("baselines/pass.rotation.")
    assert torch.equal(interleaved_rotations(case["x"]), case["rotated"])
    assert torch.equal(interleaved_labels(case["y"]), case["labels"])


@pytest.mark.parametrize(
    ("shape", "blocks"),
    [((3, 8, 8), 16), ((3, 7, 7), 4), ((3, 7, 7), 1), ((3, 8, 6), 1), ((3, 8, 8), 4)],
)
def test_images_that_can_be_rotated(shape: tuple[int, int, int], blocks: int) -> None:
    check_rotation(shape, blocks)


@pytest.mark.parametrize(
    ("shape", "blocks", "message"),
    [
        ((3, 7, 7), 16, "even side"),
        ((3, 8, 6), 16, "square"),
        ((3, 8, 6), 4, "square"),
        ((3, 8, 8), 8, "1, 4 or 16"),
    ],
)
def test_images_that_cannot_be_rotated(
    shape: tuple[int, int, int], blocks: int, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        check_rotation(shape, blocks)
