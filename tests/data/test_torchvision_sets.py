"""Data sets of torchvision through small files in its layouts."""

import json
import logging
import struct
import sys
from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat
from torchvision import datasets

from onpro.data import find, load
from onpro.data.decode import decode_file
from onpro.data.torchvision_sets import SETS
from onpro.errors import UserError
from tests.data.conftest import md5


def noise(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def save(path: Path, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise(seed, 70, 80, 3)).save(path)


def write_mnist(root: Path, kind: str) -> None:
    raw = root / kind / "raw"
    raw.mkdir(parents=True)
    for part, count in (("train", 20), ("t10k", 10)):
        images, labels = noise(count, count, 28, 28), np.arange(count, dtype=np.uint8) % 10
        header = struct.pack(">IIII", 2051, count, 28, 28)
        (raw / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        header = struct.pack(">II", 2049, count)
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


@pytest.mark.parametrize("kind", ["MNIST", "FashionMNIST", "KMNIST"])
def test_grey_arrays(place: Path, kind: str) -> None:
    write_mnist(place, kind)
    data = load(kind.lower(), data_dir=place)
    assert data.image_shape == (3, 28, 28)
    assert data.train.labels.bincount().tolist() == [2] * 10
    assert data.test.labels.tolist() == list(range(10))
    assert (data.train.images.numpy() == noise(20, 20, 1, 28, 28)).all()
    assert len(set(data.classes)) == 10
    few = load(kind.lower(), data_dir=place, limit_per_class=1, image_size=14)
    assert few.train.images.shape == (10, 3, 14, 14)


def test_coloured_arrays(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {}
    for part, count in (("train", 20), ("test", 10)):
        file = place / f"{part}_32x32.mat"
        labels = np.arange(1, count + 1)[:, None] % 10
        labels[labels == 0] = 10  # as SVHN writes the digit 0
        savemat(file, {"X": noise(count, 32, 32, 3, count), "y": labels})
        sums[part] = ["", file.name, md5(file)]
    monkeypatch.setattr(datasets.SVHN, "split_list", sums)
    data = load("svhn", data_dir=place)
    assert data.train.labels.tolist() == [k % 10 for k in range(1, 21)]
    assert (data.train.images.numpy() == noise(20, 32, 32, 3, 20).transpose(3, 2, 0, 1)).all()
    assert data.classes == tuple("0123456789")


def test_files_without_a_test_part(place: Path) -> None:
    names = [f"land{k}" for k in range(10)]
    for c, name in enumerate(names):
        for k in range(10):
            save(place / "eurosat" / "2750" / name / f"{name}_{k}.jpg", 10 * c + k)
    data = load("eurosat", data_dir=place)
    assert data.classes == tuple(names)
    assert data.train.labels.bincount().tolist() == [8] * 10
    assert data.test.labels.bincount().tolist() == [2] * 10
    last = place / "eurosat" / "2750" / "land9" / "land9_9.jpg"
    assert data.test.images[-1].equal(decode_file(last, 64))


def test_listed_files(place: Path) -> None:
    food = place / "food-101"
    classes = [f"dish{k:03}" for k in range(101)]
    listed = {name: [f"{name}/0", f"{name}/1"] for name in classes}
    save(food / "one.jpg", 0)
    for name in (image for images in listed.values() for image in images):
        path = food / "images" / f"{name}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.hardlink_to(food / "one.jpg")
    (food / "meta").mkdir()
    for part, which in (("train", 0), ("test", 1)):
        images = {name: [files[which]] for name, files in listed.items()}
        (food / "meta" / f"{part}.json").write_text(json.dumps(images))
    data = load("food101", data_dir=place, image_size=20)
    assert data.classes == tuple(classes)
    assert data.train.labels.tolist() == data.test.labels.tolist() == list(range(101))
    assert data.train.images[7].equal(decode_file(food / "one.jpg", 20))


def test_files_of_a_class_without_a_loader(place: Path) -> None:
    pets = place / "oxford-iiit-pet"
    (pets / "annotations").mkdir(parents=True)
    for part in ("trainval", "test"):
        images = [f"pet{k:02}_{part}" for k in range(37)]
        lines = [f"{name} {k + 1} 1 1" for k, name in enumerate(images)]
        (pets / "annotations" / f"{part}.txt").write_text("\n".join(lines))
        for k, name in enumerate(images):
            save(pets / "images" / f"{name}.jpg", k)
    data = load("pets", data_dir=place, limit_per_class=3)
    assert data.train.labels.tolist() == list(range(37))
    assert data.classes[36] == "Pet36"
    assert data.train.images[3].equal(decode_file(pets / "images" / "pet03_trainval.jpg", 64))


def test_what_cannot_be_downloaded_is_a_sentence(
    place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def offline(self: object) -> None:
        raise URLError("no such host")

    monkeypatch.setattr(datasets.EuroSAT, "download", offline)
    with pytest.raises(UserError) as caught:
        load("eurosat", data_dir=place)
    sentence = str(caught.value)
    assert sentence.startswith(f"eurosat is not in {place} and cannot be downloaded there")
    assert "put eurosat there" in sentence
    assert "--data-dir" in sentence
    assert caplog.record_tuples[0][1:] == (
        logging.WARNING,
        f"downloading eurosat to {place}",
    )


@pytest.mark.parametrize("entry", SETS, ids=lambda entry: entry.name)
def test_torchvision_has_it_and_takes_what_we_give(entry: Any, place: Path) -> None:
    source = find(entry.name)
    assert source.download
    assert not source.is_in(place)
    kind = getattr(datasets, entry.kind)
    for part in (*entry.train, *entry.test):
        given = dict(part) if entry.arrays or entry.listed else {**part, "loader": str}
        with pytest.raises((RuntimeError, FileNotFoundError)):
            kind(place, **given)
    assert sys.modules["torchvision"]
