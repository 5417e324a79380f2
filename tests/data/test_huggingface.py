"""Data sets of Hugging Face that were saved to disk."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from onpro.data import load, located
from onpro.data.decode import decode_file
from onpro.data.imageset import ImageSet
from onpro.data.lazy import LIMIT, LazySplit
from onpro.errors import UserError

os.environ["HF_HUB_OFFLINE"] = "1"
datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def photo(k: int) -> Image.Image:
    pixels = np.random.default_rng(k).integers(0, 256, (20, 30, 3), np.uint8)
    return Image.fromarray(pixels)


def table(start: int, count: int, **more: Any) -> Any:
    """Rows with the columns img and kind, two classes in turn."""
    columns = {
        "img": [photo(k) for k in range(start, start + count)],
        "kind": [k % 2 for k in range(count)],
    }
    features = {"img": datasets.Image(), "kind": datasets.ClassLabel(names=["owl", "wren"])}
    for name, (values, feature) in more.items():
        columns[name], features[name] = values, feature
    return datasets.Dataset.from_dict(columns, features=datasets.Features(features))


def small(name: str, **given: Any) -> ImageSet:
    return load(f"hf:{name}", image_size=8, **given)


def expected(k: int, tmp_path: Path) -> torch.Tensor:
    photo(k).save(tmp_path / "one.png")
    return decode_file(tmp_path / "one.png", 8)


@pytest.mark.parametrize("form", ["saved", "parquet"])
@pytest.mark.parametrize("test", ["test", "validation"])
def test_columns_and_splits_are_found(tmp_path: Path, form: str, test: str) -> None:
    parts = {"train": table(0, 8), test: table(100, 4)}
    path = tmp_path / "birds"
    if form == "saved":
        datasets.DatasetDict(parts).save_to_disk(path)
    else:
        path.mkdir()
        for part, rows in parts.items():
            rows.to_parquet(path / f"{part}.parquet")
    data = small(str(path))
    assert data.name == "hf-birds"
    assert data.classes == ("owl", "wren")
    assert data.train.labels.tolist() == [0, 1] * 4
    assert data.test.labels.tolist() == [0, 1] * 2
    assert data.train.images[5].equal(expected(5, tmp_path))
    assert data.test.images[3].equal(expected(103, tmp_path))
    few = small(str(path), limit_per_class=1)
    assert few.train.labels.tolist() == [0, 1]
    assert few.train.images.equal(data.train.images[:2])


def test_columns_and_splits_are_named(tmp_path: Path) -> None:
    other = {
        "sex": ([1, 0] * 4, datasets.ClassLabel(names=["f", "m"])),
        "place": (["b", "a"] * 4, datasets.Value("string")),
        "mask": ([photo(0)] * 8, datasets.Image()),
    }
    parts = {"first": table(0, 8, **other), "second": table(100, 8, **other)}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "birds")
    name = str(tmp_path / "birds")
    with pytest.raises(UserError, match=r"no split train; name one of first, second: hf:.*\?train"):
        small(name)
    splits = "train=first&test=second"
    with pytest.raises(UserError, match=r"several image columns \(img, mask\); name one: hf:"):
        small(f"{name}?{splits}")
    with pytest.raises(UserError, match=r"several label columns \(kind, sex\); name one: hf:"):
        small(f"{name}?{splits}&image=img")
    with pytest.raises(UserError, match="no column of labels 'sec'; did you mean 'sex'"):
        small(f"{name}?{splits}&image=img&label=sec")
    with pytest.raises(UserError, match="no setting of hf 'tset'; did you mean 'test'"):
        small(f"{name}?tset=second")
    with pytest.raises(UserError, match="has no split third"):
        small(f"{name}?train=first&test=third&image=img&label=sex")
    data = small(f"{name}?{splits}&image=img&label=sex")
    assert data.classes == ("f", "m")
    assert data.train.labels.tolist() == [1, 0] * 4
    data = small(f"{name}?{splits}&image=img&label=place")
    assert data.classes == ("a", "b")
    assert data.train.labels.tolist() == [1, 0] * 4


def test_splits_may_number_their_classes_differently(tmp_path: Path) -> None:
    sexes = datasets.ClassLabel(names=["f", "m"]), datasets.ClassLabel(names=["m", "f"])
    parts = {
        "train": table(0, 4, sex=([0, 1] * 2, sexes[0])),
        "test": table(9, 4, sex=([0, 1, 1, 1], sexes[1])),
    }
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "birds")
    data = small(f"{tmp_path / 'birds'}?label=sex")
    assert data.classes == ("f", "m")
    assert data.test.labels.tolist() == [1, 0, 0, 0]
    other = {"sex": (["x"] * 4, datasets.Value("string"))}
    datasets.DatasetDict({"train": parts["train"], "test": table(9, 4, **other)}).save_to_disk(
        tmp_path / "more"
    )
    with pytest.raises(UserError, match="x"):
        small(f"{tmp_path / 'more'}?label=sex")


def test_without_a_test_split_a_fifth_is_drawn(tmp_path: Path) -> None:
    table(0, 20).save_to_disk(tmp_path / "birds")
    data = small(str(tmp_path / "birds"))
    assert data.train.labels.bincount().tolist() == [8, 8]
    assert data.test.labels.bincount().tolist() == [2, 2]
    together = torch.cat([data.train.images, data.test.images]).flatten(1)
    assert len(together.unique(dim=0)) == 20
    other = small(str(tmp_path / "birds"), seed=1)
    assert not other.test.images.equal(data.test.images)


def test_rows_without_labels_or_images_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = ([-1] * 4, datasets.ClassLabel(names=["f", "m"]))
    parts = {"train": table(0, 4, sex=([0, 1] * 2, hidden[1])), "test": table(9, 4, sex=hidden)}
    datasets.DatasetDict(parts).save_to_disk(tmp_path / "birds")
    with pytest.raises(UserError, match=r"rows of the split test of .* have no label"):
        small(f"{tmp_path / 'birds'}?label=sex")
    gap = table(0, 4).map(lambda row, k: {"img": None} if k == 2 else row, with_indices=True)
    datasets.DatasetDict({"train": gap, "test": table(9, 4)}).save_to_disk(tmp_path / "gap")
    with pytest.raises(UserError, match=r"the image 2 of the split train of .* is missing"):
        small(str(tmp_path / "gap"))
    monkeypatch.setenv(LIMIT, "0")
    monkeypatch.setattr("onpro.data.huggingface.measured", lambda _: ((0.5,) * 3, (0.2,) * 3))
    assert len(small(str(tmp_path / "gap")).fingerprint) == 64


def test_decoded_as_needed_it_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.DatasetDict(train=table(0, 8), test=table(9, 4)).save_to_disk(tmp_path / "birds")
    in_memory = small(str(tmp_path / "birds"))
    monkeypatch.setenv(LIMIT, "0")
    as_needed = small(str(tmp_path / "birds"))
    assert isinstance(as_needed.train, LazySplit)
    assert as_needed.train.images.equal(in_memory.train.images)
    assert (as_needed.mean, as_needed.std) == (in_memory.mean, in_memory.std)
    assert as_needed.fingerprint == in_memory.fingerprint
    datasets.DatasetDict(train=table(1, 8), test=table(9, 4)).save_to_disk(tmp_path / "others")
    assert small(str(tmp_path / "others")).fingerprint != in_memory.fingerprint


def test_what_is_not_there_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"nobody/nothing cannot be loaded .*: check the name"):
        small("nobody/nothing")
    with pytest.raises(UserError, match="written as hf:NAME"):
        load("hf")


def test_without_the_package_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"not installed: pip install 'onpro\[hf\]'"):
        small("birds")


def test_a_folder_is_known_by_its_full_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "birds").mkdir()
    monkeypatch.chdir(tmp_path)
    assert located("hf:birds?label=sex") == f"hf:{tmp_path}/birds?label=sex"
    assert located("hf:me/birds") == "hf:me/birds"
