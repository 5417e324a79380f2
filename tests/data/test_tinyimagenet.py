"""Tiny ImageNet through a small tree of its layout; the real data where `ONPRO_DATA` has them."""

import logging
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onpro.data import load, tinyimagenet
from onpro.data.decode import decode_file
from onpro.data.imageset import ImageSet
from onpro.errors import UserError
from tests.data.conftest import WEB, md5

WNIDS = ["n00000004", "n00000001", "n00000003", "n00000000", "n00000002"]
WORDS = {
    "n00000000": "goldfish, Carassius auratus",
    "n00000001": "crane, heron's cousin",
    "n00000002": "crane",
    "n00000003": "European fire salamander, Salamandra salamandra",
    "n00000009": "something that is no class",
}
CLASSES = ("goldfish", "n00000001", "n00000002", "European fire salamander", "n00000004")
"""In the order of the ids: two cranes have their ids, and so has what nobody has named."""
TRAIN, TEST = 3, 2
"""Images of each class."""


def jpeg(brightness: int, mode: str = "RGB", side: int = 64) -> bytes:
    colour = brightness if mode == "L" else (brightness, 255 - brightness, 30)
    file = BytesIO()
    Image.new(mode, (side, side), colour).save(file, "JPEG")
    return file.getvalue()


def write_tree(folder: Path) -> None:
    """Five classes; an image's red tells its class, and in training whether it is the last."""
    folder.mkdir(parents=True)
    (folder / "wnids.txt").write_text("\n".join(WNIDS) + "\n")
    (folder / "words.txt").write_text("".join(f"{w}\t{name}\n" for w, name in WORDS.items()))
    for label, wnid in enumerate(sorted(WNIDS)):
        images = folder / "train" / wnid / "images"
        images.mkdir(parents=True)
        (images.parent / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t0\t62\t63\n")
        for k in range(TRAIN):
            image = jpeg(40 * label + 10 * k, "L" if k == 1 else "RGB")
            (images / f"{wnid}_{k}.JPEG").write_bytes(image)
    (folder / "val" / "images").mkdir(parents=True)
    lines = []
    for k in range(len(WNIDS) * TEST):
        wnid = WNIDS[k % len(WNIDS)]
        (folder / "val" / "images" / f"val_{k}.JPEG").write_bytes(jpeg(50 * int(wnid[-1])))
        lines.append(f"val_{k}.JPEG\t{wnid}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tinyimagenet, "CLASSES", len(WNIDS))
    monkeypatch.setattr(tinyimagenet, "TRAIN_PER_CLASS", TRAIN)
    monkeypatch.setattr(tinyimagenet, "TEST_PER_CLASS", TEST)


@pytest.fixture
def folder(place: Path) -> Path:
    """The tree where it belongs."""
    write_tree(place / "tiny-imagenet-200")
    return place / "tiny-imagenet-200"


def pack(tree: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(tree.rglob("*")):
            packed.write(path, path.relative_to(tree.parent))


@pytest.fixture
def server(web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tree as an archive on the network, with checksum and address to match."""
    tree = tmp_path / "server" / "tiny-imagenet-200"
    write_tree(tree)
    archive = web / "tiny-imagenet-200.zip"
    pack(tree, archive)
    published = replace(tinyimagenet.ARCHIVE, url=f"{WEB}{archive.name}", md5=md5(archive))
    monkeypatch.setattr(tinyimagenet, "ARCHIVE", published)
    return archive


def load_from(place: Path) -> ImageSet:
    return load("tinyimagenet", data_dir=place)


def test_classes_come_in_the_order_of_their_ids_with_names_that_differ(folder: Path) -> None:
    data = load_from(folder.parent)
    assert data.name == "tinyimagenet"
    assert data.classes == CLASSES
    assert data.image_shape == (3, 64, 64)


def test_pixels_and_labels_are_those_of_the_files(folder: Path) -> None:
    data = load_from(folder.parent)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    assert data.test.labels.tolist() == [4, 1, 3, 0, 2] * 2, "as they are annotated"
    for k, wnid in ((0, WNIDS[3]), (12, WNIDS[0])):
        file = folder / "train" / wnid / "images" / f"{wnid}_0.JPEG"
        plain = torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)
        assert data.train.images[k].equal(plain), "an image of 64×64 pixels is not resampled"
    assert data.test.images[2].equal(decode_file(folder / "val" / "images" / "val_2.JPEG", 64))


def test_grey_images_become_colour(folder: Path) -> None:
    red, green, blue = load_from(folder.parent).train.images[1]
    assert red.equal(green)
    assert red.equal(blue)


def test_it_is_normalised_with_the_constants_of_the_official_code(folder: Path) -> None:
    data = load_from(folder.parent)
    assert data.mean == (0.4802, 0.4480, 0.3975)
    assert data.std == (0.2770, 0.2691, 0.2821)


def test_images_are_decoded_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = load_from(folder.parent)
    assert "decoding 25 images" in caplog.text
    caplog.clear()
    again = load_from(folder.parent)
    assert not caplog.text
    assert again.train.images.equal(first.train.images)
    assert again.test.images.equal(first.test.images)
    names = {"tiny-imagenet-200", "tiny-imagenet-200.safetensors"}
    assert {path.name for path in folder.parent.iterdir()} == names


def test_with_a_limit_no_other_images_are_decoded_or_cached(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limited = load("tinyimagenet", data_dir=folder.parent, limit_per_class=1)
    assert "decoding 10 images" in caplog.text
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    expected = load_from(folder.parent).limit_per_class(1)
    caplog.clear()
    from_cache = load("tinyimagenet", data_dir=folder.parent, limit_per_class=1)
    assert not caplog.text
    for data in (limited, from_cache):
        assert data.fingerprint == expected.fingerprint


def test_the_cache_can_be_read_by_those_who_can_read_the_images(folder: Path) -> None:
    load_from(folder.parent)
    cache, image = folder.with_suffix(".safetensors"), folder / "wnids.txt"
    assert cache.stat().st_mode == image.stat().st_mode


def flip_last_byte(cache: Path) -> None:
    content = cache.read_bytes()
    cache.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a pixel": flip_last_byte,
    "its end": lambda cache: cache.write_bytes(cache.read_bytes()[:-100]),
    "all of it": lambda cache: cache.write_bytes(b"nothing of use"),
    "nothing is left": lambda cache: cache.write_bytes(b""),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_cache_is_made_again(
    folder: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    first = load_from(folder.parent)
    damage(folder.with_suffix(".safetensors"))
    for decodes in (True, False):
        caplog.clear()
        again = load_from(folder.parent)
        assert ("created again" in caplog.text) == ("decoding" in caplog.text) == decodes
        assert again.train.images.equal(first.train.images)
        assert again.test.images.equal(first.test.images)


def test_the_cache_of_other_images_is_made_again(folder: Path) -> None:
    load_from(folder.parent)
    image = folder / "val" / "images" / "val_0.JPEG"
    image.write_bytes(jpeg(255, "L"))
    assert load_from(folder.parent).test.images[0].min() == 255
    annotations = folder / "val" / "val_annotations.txt"
    lines = annotations.read_text().splitlines(keepends=True)
    annotations.write_text("".join(reversed(lines)))
    assert load_from(folder.parent).test.images[-1].min() == 255


def test_a_cache_that_cannot_be_written_is_done_without(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.with_suffix(".safetensors").mkdir()
    assert len(load_from(folder.parent).train) == 15
    assert "cannot be written" in caplog.text


def test_missing_data_are_downloaded_once(server: Path, place: Path) -> None:
    data = load_from(place)
    assert data.classes == CLASSES
    assert (len(data.train), len(data.test)) == (15, 10)
    names = {"tiny-imagenet-200", "tiny-imagenet-200.safetensors"}
    assert {path.name for path in place.iterdir()} == names
    server.unlink()
    assert load_from(place).train.images.equal(data.train.images)


def test_an_archive_in_the_folder_is_taken_without_a_network(server: Path, place: Path) -> None:
    archive = server.rename(place / server.name)
    assert len(load_from(place).test) == 10
    assert archive.is_file()


def test_without_a_network_a_sentence_says_what_to_put_where(server: Path, place: Path) -> None:
    server.unlink()
    with pytest.raises(UserError) as caught:
        load_from(place)
    assert "put the folder tiny-imagenet-200 there" in str(caught.value)
    assert not list(place.iterdir())


MISSING: dict[str, tuple[str, str]] = {
    "ids": ("wnids.txt", "there is no file .*wnids.txt"),
    "words": ("words.txt", "there is no file .*words.txt"),
    "annotations": ("val/val_annotations.txt", "there is no file .*val_annotations.txt"),
    "an image": (f"train/{WNIDS[0]}/images/{WNIDS[0]}_0.JPEG", "has 2 images, not 3"),
    "a class": (f"train/{WNIDS[1]}", f"there is no folder .*{WNIDS[1]}/images"),
    "a test image": ("val/images/val_1.JPEG", "has 9 images, not 10"),
    "the test images": ("val/images", "there is no folder .*val/images"),
}


@pytest.mark.parametrize("which", MISSING)
def test_what_is_missing_in_the_folder_is_named(folder: Path, which: str) -> None:
    name, said = MISSING[which]
    path = folder / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(UserError, match=f"{said}; remove tiny-imagenet-200 to download") as caught:
        load_from(folder.parent)
    assert str(folder) in str(caught.value)


ANNOTATIONS = {
    "another image": "val_99.JPEG\tn00000004\n",
    "a path": "../../words.txt\tn00000004\n",
    "another class": "val_0.JPEG\tn00000009\n",
    "a class too often": "val_0.JPEG\tn00000000\n",
    "no class": "val_0.JPEG\n",
}


@pytest.mark.parametrize("line", ANNOTATIONS.values(), ids=ANNOTATIONS.keys())
def test_annotations_that_do_not_fit_the_images_are_refused(folder: Path, line: str) -> None:
    annotations = folder / "val" / "val_annotations.txt"
    lines = annotations.read_text().splitlines(keepends=True)
    annotations.write_text("".join([line, *lines[1:]]))
    with pytest.raises(UserError, match="does not name 2 images of each class"):
        load_from(folder.parent)


BROKEN = {
    "cut off": (jpeg(7)[:300], "cannot be read"),
    "no image": (b"<html>", "cannot be read"),
    "empty": (b"", "cannot be read"),
    "a bomb": (jpeg(7, "L", 65), "has too many pixels"),
}


@pytest.mark.parametrize("which", BROKEN)
def test_a_file_that_is_no_image_is_named(
    folder: Path, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onpro.data.decode.MOST_PIXELS_IN_FILE", 64 * 64)
    content, said = BROKEN[which]
    file = folder / "train" / WNIDS[2] / "images" / f"{WNIDS[2]}_1.JPEG"
    file.write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        load_from(folder.parent)
    assert str(file) in str(caught.value)
    assert not folder.with_suffix(".safetensors").exists()


def test_progress_is_said_now_and_then(
    folder: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onpro.data.progress.LOG_INTERVAL", 0.0)
    load_from(folder.parent)
    assert "decoding 25 images of Tiny ImageNet: 100 %" in caplog.text
    assert all(record.levelno == logging.WARNING for record in caplog.records), "so that it is seen"


REAL = Path(os.environ.get("ONPRO_DATA", "")) / tinyimagenet.FOLDER


@pytest.mark.skipif(
    "ONPRO_DATA" not in os.environ or not REAL.is_dir(),
    reason="the folder in ONPRO_DATA has no Tiny ImageNet",
)
def test_the_real_tiny_imagenet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("CLASSES", 200), ("TRAIN_PER_CLASS", 500), ("TEST_PER_CLASS", 50)):
        monkeypatch.setattr(tinyimagenet, name, count)
    data = load("tinyimagenet")
    assert data.train.labels.bincount().tolist() == [500] * 200
    assert data.test.labels.bincount().tolist() == [50] * 200
    assert data.classes[0] == "goldfish"
