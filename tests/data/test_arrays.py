from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onpro.data.arrays import Array, Labels, as_images, from_arrays


def images(count: int = 4, size: int = 6, channels: int = 3) -> torch.Tensor:
    generator = torch.Generator().manual_seed(count)
    shape = (count, channels, size, size)
    return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)


@given(
    numpy=st.booleans(),
    channels_last=st.booleans(),
    floats=st.sampled_from([None, torch.float16, torch.float32, torch.float64]),
    channels=st.sampled_from([1, 3]),
)
def test_every_usual_form_gives_the_same_pixels(
    numpy: bool, channels_last: bool, floats: torch.dtype | None, channels: int
) -> None:
    original = images(channels=channels)
    form = original if floats is None else (original.double() / 255).to(floats)
    form = form.permute(0, 2, 3, 1) if channels_last else form
    given_form: Array = form.numpy() if numpy else form
    assert as_images(given_form).equal(original.expand(-1, 3, -1, -1))


def test_grey_images_without_a_channel_axis() -> None:
    grey = images(channels=1)[:, 0, :, :3]
    assert as_images(grey).equal(grey[:, None].expand(-1, 3, -1, -1))


def test_an_array_that_may_not_be_written_is_read() -> None:
    array = images().numpy()
    array.flags.writeable = False
    assert as_images(array).equal(images())


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (torch.zeros(4, 6), "shape"),
        (torch.zeros(4, 0, 6), "shape"),
        (torch.zeros(4, 5, 6, 7), "no axis"),
        (torch.zeros(4, 3, 3, 3), "both"),
        (torch.zeros(4, 3, 6, 6, dtype=torch.int64), "uint8 or floats"),
        (torch.full((4, 3, 6, 6), 255.0), "divide"),
        (torch.full((4, 3, 6, 6), -1.0), "0…1"),
        (torch.full((4, 3, 6, 6), float("nan")), "NaN"),
        (np.full((4, 3, 6, 6), "a"), "numbers"),
    ],
)
def test_other_arrays_are_refused_in_words(bad: Array, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        as_images(bad)


@pytest.mark.parametrize(
    ("train", "test", "classes"),
    [
        ([2, 0, 2, 7], [7, 0], ("0", "2", "7")),
        (np.array([2, 0, 2, 7]), np.array([7, 0]), ("0", "2", "7")),
        (torch.tensor([2, 0, 2, 7]), torch.tensor([7, 0]), ("0", "2", "7")),
        (["cat", "ant", "cat", "dog"], ["dog", "ant"], ("ant", "cat", "dog")),
        (np.array(["cat", "ant", "cat", "dog"]), np.array(["dog", "ant"]), ("ant", "cat", "dog")),
        (list(np.array([2, 0, 2, 7])), [7, 0], ("0", "2", "7")),
    ],
)
def test_labels_of_any_kind_are_numbered_in_sorted_order(
    train: Labels, test: Labels, classes: tuple[str, ...]
) -> None:
    data = from_arrays(images(4), train, images(2), test)
    assert data.classes == classes
    assert data.train.labels.tolist() == [1, 0, 1, 2]
    assert data.test.labels.tolist() == [2, 0]


@pytest.mark.parametrize("labels", [[2, 0, 2, 1], ["cow", "ant", "cow", "bee"]])
def test_classes_given_decide_names_and_order(labels: list[Any]) -> None:
    data = from_arrays(images(4), labels, images(4), labels, classes=["ant", "bee", "cow", "dog"])
    assert data.classes == ("ant", "bee", "cow", "dog")
    assert data.train.labels.tolist() == [2, 0, 2, 1]


def test_statistics_are_measured_or_taken_as_given() -> None:
    white = np.ones((2, 4, 4, 3))
    measured = from_arrays(white, [0, 1], white, [0, 1])
    assert (measured.mean, measured.std) == ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))
    given_ones = from_arrays(
        white, [0, 1], white, [0, 1], name="white", mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2)
    )
    assert given_ones.name == "white"
    assert (given_ones.mean, given_ones.std) == ((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))


@pytest.mark.parametrize(
    ("train", "train_labels", "test", "test_labels", "sentence"),
    [
        (images(4), [0, 1], images(2), [0, 1], "4 training images but 2 labels"),
        (images(2), [0, 1], images(2), [0, 5], "test label 5"),
        (images(2), [0, 1], images(2), [0, None], "test label None"),
        (images(2), [0, "a"], images(2), [0, 0], "sorted"),
        (images(2), [[0], [1]], images(2), [0, 0], "sorted"),
        (images(2), np.zeros((2, 2)), images(2), [0, 0], "shape"),
        (images(0), [], images(2), [0, 0], "no training images"),
        (images(2), [0, 1], images(0), [], "no test images"),
        (images(2), [0, 1], images(2, size=8), [0, 1], "same size"),
    ],
)
def test_data_that_do_not_fit_are_refused_in_words(
    train: Array, train_labels: Labels, test: Array, test_labels: Labels, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        from_arrays(train, train_labels, test, test_labels)


def test_class_names_differ() -> None:
    with pytest.raises(ValueError, match="distinct"):
        from_arrays(images(2), [0, 1], images(2), [0, 1], classes=["a", "a"])
