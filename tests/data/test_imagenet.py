"""ImageNet through a made-up one in its layouts."""

import os
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image

from onpro.data import find, imagenet, load
from onpro.data.decode import decode_file
from onpro.data.lazy import LazySplit
from onpro.errors import UserError
from tests.data.made_up_imagenet import Layout, write_imagenet

SMALL = ((50, 37), (37, 50), (50, 50))
"""Shapes of images where only the layout matters."""


@pytest.fixture(scope="module")
def sorted_100(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 100 classes, 3 images to train and 2 to test with."""
    root = tmp_path_factory.mktemp("imagenet")
    write_imagenet(root, train=3, test=2, shapes=SMALL)
    return root


def test_its_description_is_that_of_the_paper() -> None:
    for name, classes in (("imagenet100", 100), ("imagenet1k", 1000)):
        source = find(name)
        assert (source.classes, source.tasks, source.image_size) == (classes, 50, 224)


@pytest.mark.thorough
@pytest.mark.parametrize("layout", get_args(Layout))
def test_all_layouts_give_the_same_data(tmp_path: Path, sorted_100: Path, layout: Layout) -> None:
    write_imagenet(tmp_path, train=3, test=2, shapes=SMALL, layout=layout)
    data = load("imagenet100", data_dir=tmp_path, image_size=16)
    assert data.train.labels.bincount().tolist() == [3] * 100
    assert data.test.labels.bincount().tolist() == [2] * 100
    assert data.classes == tuple(sorted(data.classes))
    expected = load("imagenet100", data_dir=sorted_100, image_size=16)
    assert data.classes == expected.classes
    assert data.train.images.equal(expected.train.images)
    assert data.test.images.equal(expected.test.images)


def test_pixels_are_those_of_the_files(sorted_100: Path) -> None:
    data = load("imagenet100", data_dir=sorted_100, image_size=24)
    for label in (0, 57):
        wnid = data.classes[label]
        for k, image in enumerate(data.train.images[data.train.labels == label]):
            file = sorted_100 / "train" / wnid / f"{wnid}_{k}.JPEG"
            assert image.equal(decode_file(file, 24))


def test_the_default_size_is_224(sorted_100: Path) -> None:
    data = load("imagenet100", data_dir=sorted_100, limit_per_class=1)
    assert data.image_shape == (3, 224, 224)
    assert len(data.train) == len(data.test) == 100


def test_grey_cmyk_and_rotated_images(tmp_path: Path) -> None:
    write_imagenet(tmp_path, train=4, test=1, pool=4, shapes=[(60, 40)])
    data = load("imagenet100", data_dir=tmp_path, image_size=20)
    plain, grey, cmyk, rotated = (data.train.images[k] for k in range(4))
    assert grey[0].equal(grey[1])
    assert not plain[0].equal(plain[1])
    with Image.open(tmp_path / "pool" / "2.JPEG") as image:
        assert image.mode == "CMYK"
        image.convert("RGB").save(tmp_path / "cmyk.png")
    assert cmyk.equal(decode_file(tmp_path / "cmyk.png", 20))
    with Image.open(tmp_path / "pool" / "3.JPEG") as image:
        image.rotate(-90, expand=True).save(tmp_path / "upright.png")
    assert rotated.equal(decode_file(tmp_path / "upright.png", 20))


WNIDS = [f"n{k:08}" for k in range(1000)]


@pytest.mark.parametrize("classes", [100, 1000])
def test_the_classes_are_those_of_seed_1993(classes: int) -> None:
    random = np.random.RandomState(1993)
    drawn = [WNIDS[k] for k in random.choice(1000, classes, replace=False)]
    place = Path("train")
    assert imagenet._chosen(WNIDS, classes, "shuffled", place) == drawn
    assert imagenet._chosen(WNIDS, classes, "natural", place) == sorted(drawn)
    if classes == 100:
        assert drawn[:4] == ["n00000054", "n00000007", "n00000894", "n00000512"]


@pytest.mark.thorough
def test_a_subset_of_a_thousand_classes(tmp_path: Path) -> None:
    write_imagenet(tmp_path, classes=1000, train=1, test=1, shapes=[(9, 9)])
    everything = load("imagenet1k", data_dir=tmp_path, image_size=8)
    data = load("imagenet100:shuffled", data_dir=tmp_path, image_size=8)
    order = np.random.RandomState(1993).permutation(1000)[:100]
    assert data.classes == tuple(everything.classes[k] for k in order)
    assert data.train.images.equal(everything.train.images[torch.from_numpy(order)])


def test_an_unknown_order_is_refused(sorted_100: Path) -> None:
    with pytest.raises(UserError, match="no class order of ImageNet 'shufled'; did you mean"):
        load("imagenet100:shufled", data_dir=sorted_100)


def test_a_folder_without_it_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"ImageNet is not in .*train and val with --data-dir"):
        load("imagenet100", data_dir=tmp_path)


def test_another_number_of_classes_is_refused(tmp_path: Path) -> None:
    write_imagenet(tmp_path, classes=7, shapes=[(9, 9)])
    with pytest.raises(UserError, match="has 7 class folders, not 1000 or 100"):
        load("imagenet100", data_dir=tmp_path)
    with pytest.raises(UserError, match=r"has 7 class folders, not 1000\."):
        load("imagenet1k", data_dir=tmp_path)


def test_flat_images_without_labels_are_refused(tmp_path: Path) -> None:
    write_imagenet(tmp_path, train=1, layout="kaggle", shapes=[(9, 9)])
    (tmp_path / "LOC_val_solution.csv").unlink()
    with pytest.raises(UserError, match="have no labels: sort them into class folders, or put"):
        load("imagenet100", data_dir=tmp_path)


def test_an_image_without_a_label_and_a_class_without_images(tmp_path: Path) -> None:
    folder = write_imagenet(tmp_path, train=1, layout="kaggle", shapes=[(9, 9)])
    solution = tmp_path / "LOC_val_solution.csv"
    lines = solution.read_text().splitlines()
    solution.write_text("\n".join(lines[:-1]))
    with pytest.raises(UserError, match=r"no class for the image .*val_00000001\.JPEG"):
        load("imagenet100", data_dir=tmp_path)
    (folder / "val" / "ILSVRC2012_val_00000001.JPEG").unlink()
    with pytest.raises(UserError, match="of ImageNet has no image in"):
        load("imagenet100", data_dir=tmp_path)


def test_a_truncated_image_is_named_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", "0.001")
    write_imagenet(tmp_path, train=3, test=1)
    data = load("imagenet100", data_dir=tmp_path)
    assert isinstance(data.train, LazySplit)
    (folder, *_) = sorted((tmp_path / "train").iterdir())
    (file, *_) = sorted(folder.iterdir())
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=rf"{file.name} cannot be read .*truncated"):
        load("imagenet100", data_dir=tmp_path)
    os.truncate(file, 0)
    with pytest.raises(UserError, match=rf"{file.name} cannot be read"):
        load("imagenet100", data_dir=tmp_path)
