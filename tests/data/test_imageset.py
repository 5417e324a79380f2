import pytest
import torch

from onpro.data.imageset import ImageSet, Split, measure
from onpro.data.tiny import tiny
from onpro.errors import UserError


def random_images(count: int, size: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, 3, size, size), generator=generator).to(torch.uint8)


def test_measured_statistics_are_those_of_the_pixels() -> None:
    images = random_images(7, 5)
    mean, std = measure(images)
    pixels = images.double() / 255
    torch.testing.assert_close(torch.tensor(mean).double(), pixels.mean((0, 2, 3)))
    torch.testing.assert_close(
        torch.tensor(std).double(), pixels.std((0, 2, 3), correction=0), rtol=1e-6, atol=1e-6
    )


def test_a_constant_channel_can_be_divided_by_its_deviation() -> None:
    mean, std = measure(torch.full((3, 3, 4, 4), 51, dtype=torch.uint8))
    assert mean == pytest.approx((0.2, 0.2, 0.2))
    assert std == (1.0, 1.0, 1.0)


def test_resizing_keeps_flat_images_flat_and_labels_and_statistics() -> None:
    flat = torch.full((3, 3, 8, 8), 77, dtype=torch.uint8)
    split = Split(flat, torch.tensor([0, 1, 0]))
    data = ImageSet("flat", split, split, ("a", "b"), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    small = data.resized(5)
    assert small.train.images.shape == (3, 3, 5, 5)
    assert (small.test.images == 77).all()
    assert small.train.labels.equal(split.labels)
    assert (small.mean, small.std) == (data.mean, data.std)


def test_the_limit_keeps_the_first_of_each_class() -> None:
    data = tiny(classes=3, train_per_class=5, test_per_class=4)
    few = data.limit_per_class(2)
    assert few.train.labels.bincount().tolist() == [2, 2, 2]
    assert few.test.labels.bincount().tolist() == [2, 2, 2]
    assert few.train.images.equal(data.train.images[:6])


def test_the_limit_takes_an_empty_test_set_as_it_is() -> None:
    data = tiny(classes=3, train_per_class=5, test_per_class=0)
    assert len(data.limit_per_class(2).test) == 0


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(UserError, match="at least 1"):
        tiny().limit_per_class(0)


def test_images_are_held_out_for_validation_class_by_class() -> None:
    data = tiny(classes=3, train_per_class=20, test_per_class=4)
    held_out = data.for_validation(0.15)
    assert held_out.test.labels.bincount().tolist() == [3, 3, 3]
    assert held_out.train.labels.bincount().tolist() == [17, 17, 17]
    every = {image.numpy().tobytes() for image in data.train.images}
    parts = [
        {image.numpy().tobytes() for image in split.images}
        for split in (held_out.train, held_out.test)
    ]
    assert parts[0] | parts[1] == every
    assert not parts[0] & parts[1]
    again = data.for_validation(0.15)
    assert again.fingerprint == held_out.fingerprint != data.fingerprint


@pytest.mark.parametrize("share", [0.001, 0.999])
def test_one_image_at_least_is_held_out_and_one_is_left(share: float) -> None:
    data = tiny(classes=2, train_per_class=5, test_per_class=1).for_validation(share)
    for split in (data.train, data.test):
        assert split.labels.bincount().min() >= 1


def test_a_class_of_one_image_cannot_be_validated() -> None:
    data = tiny(classes=2, train_per_class=1, test_per_class=1)
    with pytest.raises(UserError, match="a single training image"):
        data.for_validation(0.5)
