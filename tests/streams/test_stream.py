"""What a stream hands out is what every method can take."""

from typing import Any

import pytest
import torch

from onpro.streams import Batch

SOUND: dict[str, Any] = {
    "images": torch.zeros(2, 3, 4, 4, dtype=torch.uint8),
    "labels": torch.tensor([1, 0]),
    "task": None,
    "classes": (0, 1),
}


def test_a_batch_has_the_length_of_its_labels() -> None:
    assert len(Batch(**SOUND)) == 2
    assert len(Batch(SOUND["images"][:0], SOUND["labels"][:0], None, ())) == 0


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"images": torch.zeros(2, 4, 4, dtype=torch.uint8)}, "must have the shape"),
        ({"images": torch.zeros(2, 4, 4, 3, dtype=torch.uint8)}, "must have the shape"),
        ({"labels": torch.tensor([1])}, "one for each image"),
        ({"labels": torch.tensor([1, 0], dtype=torch.int32)}, "must be int64"),
    ],
)
def test_a_batch_no_method_could_take_is_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Batch(**SOUND | wrong)
