"""Splits whose images are decoded when needed."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from onpro.data import load, workers
from onpro.data.decode import looks_whole
from onpro.data.imageset import ImageSet, measure
from onpro.data.lazy import LazySplit
from onpro.errors import UserError


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Three classes of 40 noisy images each."""
    root = tmp_path / "birds"
    random = np.random.default_rng(0)
    for name in ("crane", "owl", "wren"):
        (root / name).mkdir(parents=True)
        for k in range(40):
            pixels = random.integers(0, 256, (11, 13, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{k:02}.png")
    return root


def both(birds: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ImageSet, ImageSet]:
    """The data decoded to memory, and when needed."""
    in_memory = load(f"folder:{birds}", image_size=8)
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", "0")
    as_needed = load(f"folder:{birds}", image_size=8)
    assert not isinstance(in_memory.train, LazySplit)
    assert isinstance(as_needed.train, LazySplit)
    assert isinstance(as_needed.test, LazySplit)
    return in_memory, as_needed


@pytest.mark.parametrize("cpus", [1, 4])
def test_both_ways_give_the_same_data(
    birds: Path, cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "cores", lambda: cpus)
    monkeypatch.setattr(workers, "WORTH_A_WORKER", 40)
    in_memory, as_needed = both(birds, monkeypatch)
    assert as_needed.classes == in_memory.classes
    assert (as_needed.mean, as_needed.std) == (in_memory.mean, in_memory.std)
    assert as_needed.image_shape == in_memory.image_shape
    assert as_needed.fingerprint == in_memory.fingerprint
    for part in ("train", "test"):
        a, b = getattr(in_memory, part), getattr(as_needed, part)
        assert b.labels.equal(a.labels)
        assert b.images.equal(a.images)
        order = torch.randperm(len(a), generator=torch.Generator().manual_seed(0))
        for x, y in zip(a.batches(order.split(7)), b.batches(order.split(7)), strict=True):
            assert type(y) is type(x)
            assert y.images.equal(x.images)
            assert y.labels.equal(x.labels)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_batches_are_those_in_memory(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory, as_needed = both(birds, monkeypatch)
    device = torch.device("cuda")
    a, b = in_memory.train.to(device), as_needed.train.to(device)
    order = torch.randperm(len(a), generator=torch.Generator().manual_seed(0)).to(device)
    for x, y in zip(a.batches(order.split(7)), b.batches(order.split(7)), strict=True):
        assert y.images.device.type == y.labels.device.type == "cuda"
        assert y.images.equal(x.images)
        assert y.labels.equal(x.labels)
    assert b.select(order[:5]).images.equal(a.select(order[:5]).images)


def test_parts_of_a_split(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_memory, as_needed = both(birds, monkeypatch)
    chosen, swapped = torch.tensor([50, 3, 4]), torch.tensor([2, 1, 0])
    for a, b in (
        (in_memory.train.select(chosen), as_needed.train.select(chosen)),
        (in_memory.train.relabelled(swapped), as_needed.train.relabelled(swapped)),
        (in_memory.limit_per_class(2).test, as_needed.limit_per_class(2).test),
    ):
        assert isinstance(b, LazySplit)
        assert len(a) == len(b)
        assert b.labels.equal(a.labels)
        assert b.images.equal(a.images)
        again = torch.tensor([len(a) - 1])
        assert b.select(again).images.equal(a.select(again).images)
    assert list(as_needed.train.batches([])) == []
    limited = as_needed.limit_per_class(2)
    assert limited.fingerprint != as_needed.fingerprint


def test_the_limit_decides_and_is_logged(
    birds: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    train, test = 96 * 3 * 8 * 8, 24 * 3 * 8 * 8
    for limit, lazily in ((train, []), (train - 1, ["training"]), (test - 1, ["training", "test"])):
        caplog.clear()
        monkeypatch.setenv("ONPRO_IMAGE_MEMORY", repr(limit / 2**30))
        data = load(f"folder:{birds}", image_size=8)
        kinds = {"training": data.train, "test": data.test}
        assert [part for part, split in kinds.items() if isinstance(split, LazySplit)] == lazily
        said = [record.getMessage() for record in caplog.records if "decoded as" in record.message]
        assert [line.split()[2] for line in said] == lazily
    assert "the 96 training images of birds take 0.0 GiB decoded" in said[0]
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", "lots")
    with pytest.raises(UserError, match="ONPRO_IMAGE_MEMORY must be a number of GiB, not 'lots'"):
        load(f"folder:{birds}", image_size=8)


def test_of_many_images_some_are_measured(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onpro.data.imageset.MEASURED", 32)
    in_memory, as_needed = both(birds, monkeypatch)
    assert (as_needed.mean, as_needed.std) == (in_memory.mean, in_memory.std)
    assert in_memory.mean == measure(in_memory.train.images[::3])[0]


@pytest.mark.parametrize("kind", ["cut", "empty"])
def test_a_damaged_file_is_named_before_anything_is_decoded(
    birds: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", "0")
    file = birds / "owl" / "04.png"
    os.truncate(file, {"cut": 200}.get(kind, 0))
    monkeypatch.setattr(LazySplit, "images", property(lambda _: pytest.fail("it was decoded")))
    with pytest.raises(UserError, match=r"04\.png cannot be read"):
        load(f"folder:{birds}", image_size=8)


def test_an_image_with_bytes_after_its_end_is_no_damage(
    birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONPRO_IMAGE_MEMORY", "0")
    file = birds / "owl" / "04.png"
    file.write_bytes(file.read_bytes() + bytes(500))
    assert not looks_whole(str(file))
    assert len(load(f"folder:{birds}", image_size=8).train) == 96


@pytest.mark.parametrize("suffix", ["bmp", "gif", "jpeg", "pgm", "png", "ppm", "tiff", "webp"])
def test_whole_files_of_all_formats_look_whole(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    Image.new("RGB" if suffix != "pgm" else "L", (30, 20)).save(path)
    assert looks_whole(str(path))
    path.write_bytes(b"text" + path.read_bytes())
    assert not looks_whole(str(path))


def test_checking_and_decoding_tell_how_far_they_are(
    birds: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("onpro.data.progress.LOG_INTERVAL", 0.0)
    both(birds, monkeypatch)
    said = [record.getMessage() for record in caplog.records]
    for line in (
        f"listing {birds}: 100 %",
        "decoding 96 training images of birds: 100 %",
        "checking 96 images: 100 %",
    ):
        assert line in said
    assert all(record.levelno == logging.WARNING for record in caplog.records)
