"""CIFAR through small files of its layout; the real data where `ONPRO_DATA` has them."""

import os
import pickle
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision import datasets

from onpro.data import cifar, load
from onpro.data.cifar import CIFAR10, CIFAR100, Release
from onpro.errors import UserError
from tests.data.conftest import WEB, md5


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.sprung,)


def write_files(folder: Path, release: Release) -> None:
    """Files of CIFAR's names and layout with 4 random images each."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for file in release.train | release.test:
        pixels = random.integers(0, 256, (4, 3072), dtype=np.uint8)
        (folder / file).write_bytes(pickle.dumps({"data": pixels, release.labels: [0, 1, 1, 0]}))
    (meta,) = release.meta
    (folder / meta).write_bytes(pickle.dumps({release.classes: ["ant", "bee"]}))


@pytest.fixture(params=["cifar10", "cifar100"])
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def release(name: str) -> Release:
    return {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]


@pytest.fixture
def server(
    name: str, release: Release, web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The small files on the network, with checksums and address to match; gives the archive."""
    folder = tmp_path / "server" / release.archive.folder
    write_files(folder, release)
    archive = web / release.archive.file
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder, folder.name)

    def checked(files: Mapping[str, str]) -> dict[str, str]:
        return {file: md5(folder / file) for file in files}

    small = replace(
        release,
        archive=replace(release.archive, url=f"{WEB}{archive.name}", md5=md5(archive)),
        train=checked(release.train),
        test=checked(release.test),
        meta=checked(release.meta),
    )
    monkeypatch.setattr(cifar, name.upper(), small)
    return archive


def test_missing_data_are_downloaded_once(
    name: str, release: Release, server: Path, place: Path
) -> None:
    data = load(name, data_dir=place)
    assert len(data.train) == 4 * len(release.train)
    assert len(data.test) == 4
    assert data.classes == ("ant", "bee")
    assert data.image_shape == (3, 32, 32)
    assert [entry.name for entry in place.iterdir()] == [release.archive.folder]

    server.unlink()
    again = load(name, data_dir=place)
    assert again.train.images.equal(data.train.images)


def test_pixels_and_labels_are_those_of_the_files(
    name: str, release: Release, server: Path, place: Path
) -> None:
    data = load(name, data_dir=place)
    (test,) = release.test
    file = place / release.archive.folder / test
    entry = pickle.loads(file.read_bytes())
    assert data.test.images.equal(torch.from_numpy(entry["data"]).reshape(4, 3, 32, 32))
    assert data.test.labels.tolist() == [0, 1, 1, 0]


def test_both_are_normalised_with_the_constants_of_cifar10(
    name: str, server: Path, place: Path
) -> None:
    data = load(name, data_dir=place)
    assert data.mean == pytest.approx((125.3 / 255, 123.0 / 255, 113.9 / 255))
    assert data.std == pytest.approx((63.0 / 255, 62.1 / 255, 66.7 / 255))


def test_the_folder_may_come_from_the_environment(
    name: str, server: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONPRO_DATA", str(place))
    load(name)
    assert list(place.iterdir())


def test_an_archive_in_the_folder_is_taken_without_a_network(
    name: str, release: Release, server: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.rename(place / release.archive.file)
    assert len(load(name, data_dir=place).test) == 4


def test_without_a_network_a_sentence_says_what_is_expected_where(
    name: str, release: Release, server: Path, place: Path
) -> None:
    server.unlink()
    with pytest.raises(UserError) as caught:
        load(name, data_dir=place)
    sentence = str(caught.value)
    for part in (str(place), release.archive.folder, "--data-dir", "ONPRO_DATA"):
        assert part in sentence
    assert "\n" not in sentence
    assert not list(place.iterdir())


def test_a_damaged_download_leaves_nothing_behind(name: str, server: Path, place: Path) -> None:
    server.write_bytes(server.read_bytes()[:-20])
    with pytest.raises(UserError, match="cannot be downloaded"):
        load(name, data_dir=place)
    assert not list(place.iterdir())


def test_a_damaged_archive_in_the_folder_is_named(
    name: str, release: Release, server: Path, place: Path
) -> None:
    (place / release.archive.file).write_bytes(b"half an archive")
    with pytest.raises(UserError, match=release.archive.file):
        load(name, data_dir=place)


def test_links_in_an_archive_of_the_right_checksum_are_not_followed(
    name: str, release: Release, server: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(server, "w:gz") as tar:
        for file in release.train | release.test:
            link = tarfile.TarInfo(f"{release.archive.folder}/{file}")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
        tar.addfile(tarfile.TarInfo("../escaped"), BytesIO())
    small = getattr(cifar, name.upper())
    archive = replace(small.archive, md5=md5(server))
    monkeypatch.setattr(cifar, name.upper(), replace(small, archive=archive))
    with pytest.raises(UserError, match=f"{name} is not in"):
        load(name, data_dir=place)
    assert not list(place.iterdir())
    assert not (place.parent / "escaped").exists()


@pytest.mark.parametrize("which", ["train", "test", "meta"])
def test_a_file_with_another_checksum_is_never_unpickled(
    name: str, release: Release, server: Path, place: Path, which: str
) -> None:
    load(name, data_dir=place)
    folder = place / release.archive.folder
    file = next(iter(getattr(release, which)))
    sprung = place / "sprung"
    (folder / file).write_bytes(pickle.dumps(Trap(sprung)))
    with pytest.raises(UserError, match="damaged") as caught:
        load(name, data_dir=place)
    assert str(folder) in str(caught.value)
    assert not sprung.exists()


def test_a_file_that_is_missing_is_fetched_again(
    name: str, release: Release, server: Path, place: Path
) -> None:
    load(name, data_dir=place)
    (meta,) = release.meta
    (place / release.archive.folder / meta).unlink()
    assert load(name, data_dir=place).classes == ("ant", "bee")


def test_a_mistyped_folder_starts_no_download(name: str, server: Path, place: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        load(name, data_dir=place / "mistyped")
    assert not list(place.iterdir())


LOAD = """
import sys
from dataclasses import replace
from pathlib import Path
from onpro.data import cifar, load

cifar.CIFAR10 = replace(cifar.CIFAR10, train={train}, test={test}, meta={meta})
assert len(load("cifar10", data_dir=Path({place!r})).test) == 4
assert not {{"torchvision", "torch._dynamo"}} & sys.modules.keys()
"""


@pytest.mark.parametrize("name", ["cifar10"], indirect=True)
@pytest.mark.thorough
def test_reading_the_files_does_not_load_the_compiler(server: Path, place: Path) -> None:
    load("cifar10", data_dir=place)
    small = cifar.CIFAR10
    code = LOAD.format(train=small.train, test=small.test, meta=small.meta, place=str(place))
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("ours", "theirs"), [(CIFAR10, "CIFAR10"), (CIFAR100, "CIFAR100")])
def test_checksums_and_addresses_are_those_that_torchvision_knows(
    ours: Release, theirs: str
) -> None:
    known = getattr(datasets, theirs)
    assert list(ours.train.items()) == list(map(tuple, known.train_list))
    assert list(ours.test.items()) == list(map(tuple, known.test_list))
    assert ours.meta == {known.meta["filename"]: known.meta["md5"]}
    assert ours.classes == known.meta["key"]
    archive = ours.archive
    assert (archive.url, archive.file, archive.md5) == (known.url, known.filename, known.tgz_md5)
    assert archive.folder == known.base_folder


REAL = Path(os.environ.get("ONPRO_DATA", "")) / CIFAR10.archive.folder


@pytest.mark.skipif(
    "ONPRO_DATA" not in os.environ or not REAL.is_dir(),
    reason="the folder in ONPRO_DATA has no CIFAR-10",
)
def test_the_real_cifar10() -> None:
    data = load("cifar10")
    assert data.train.labels.bincount().tolist() == [5000] * 10
    assert data.test.labels.bincount().tolist() == [1000] * 10
    assert data.classes[0] == "airplane"
    assert data.classes[9] == "truck"
    mean = data.train.images.float().mean((0, 2, 3)) / 255
    torch.testing.assert_close(mean, torch.tensor(data.mean), rtol=0, atol=1e-3)
