"""CIFAR-10 and CIFAR-100, from the files of their authors."""

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onpro.data.archive import take_out
from onpro.data.download import Archive, fetched
from onpro.data.imageset import ImageSet, Split, Triple
from onpro.data.location import data_folder
from onpro.errors import UserError

MEAN: Triple = (125.3 / 255, 123.0 / 255, 113.9 / 255)
"""Of CIFAR-10; the official code takes it for CIFAR-100 too, and so do we."""
STD: Triple = (63.0 / 255, 62.1 / 255, 66.7 / 255)
"""Of CIFAR-10; the official code takes it for CIFAR-100 too, and so do we."""

MOST_BYTES = 2**28
"""Larger than all files of a CIFAR together, and small enough to do no harm."""


@dataclass(frozen=True)
class Release:
    """What the authors have published: files with their MD5 checksums."""

    name: str
    folder: str
    archive: Archive
    train: Mapping[str, str]
    test: Mapping[str, str]
    meta: Mapping[str, str]
    class_names: str
    """Key of the class names in the meta file."""
    labels: str
    """Key of the labels in the other files."""

    @property
    def files(self) -> dict[str, str]:
        """All files."""
        return {**self.train, **self.test, **self.meta}


CIFAR10 = Release(
    name="cifar10",
    folder="cifar-10-batches-py",
    archive=Archive(
        file="cifar-10-python.tar.gz",
        size=170_498_071,
        md5="c58f30108f718f92721af3b95e74349a",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
    ),
    train={
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
    },
    test={"test_batch": "40351d587109b95175f43aff81a1287e"},
    meta={"batches.meta": "5ff9c542aee3614f3951f8cda6e48888"},
    class_names="label_names",
    labels="labels",
)

CIFAR100 = Release(
    name="cifar100",
    folder="cifar-100-python",
    archive=Archive(
        file="cifar-100-python.tar.gz",
        size=169_001_437,
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
    ),
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta={"meta": "7973b15100ade9c7d40fb424638fde48"},
    class_names="fine_label_names",
    labels="fine_labels",
)


def cifar10(data_dir: Path | None = None) -> ImageSet:
    """CIFAR-10: 50000 training and 10000 test images of 32×32 pixels, 10 classes."""
    return _load(CIFAR10, data_folder(data_dir))


def cifar100(data_dir: Path | None = None) -> ImageSet:
    """CIFAR-100: 50000 training and 10000 test images of 32×32 pixels, 100 classes."""
    return _load(CIFAR100, data_folder(data_dir))


def _load(release: Release, root: Path) -> ImageSet:
    """Read the files below a folder, after a download where some are missing."""
    folder = root / release.folder
    if not all((folder / file).is_file() for file in release.files):
        _fetch(release, root)
    try:
        (meta,) = _contents(folder, release.meta)
        train, test = _contents(folder, release.train), _contents(folder, release.test)
    except _Damaged as error:
        raise UserError(
            f"the {release.name} files in {folder} are damaged (the checksum of {error} differs); "
            "remove that folder to download them again, or give another one with --data-dir DIR or "
            "ONPRO_DATA."
        ) from error
    except OSError as error:
        raise UserError(f"the {release.name} files in {folder} cannot be read: {error}.") from error
    return ImageSet(
        name=release.name,
        train=_split(train, release.labels),
        test=_split(test, release.labels),
        classes=tuple(meta[release.class_names]),
        mean=MEAN,
        std=STD,
    )


class _Damaged(Exception):  # noqa: N818 # it is a state of a file
    """A file is not what was published; the message is its name."""


def _contents(folder: Path, files: Mapping[str, str]) -> list[dict[str, Any]]:
    """What the files hold; none is unpickled whose checksum differs."""
    contents = []
    for file, checksum in files.items():
        packed = (folder / file).read_bytes()
        if hashlib.md5(packed, usedforsecurity=False).hexdigest() != checksum:
            raise _Damaged(file)
        contents.append(pickle.loads(packed, encoding="latin1"))
    return contents


def _split(contents: list[dict[str, Any]], labels: str) -> Split:
    pixels = np.concatenate([content["data"] for content in contents])
    return Split(
        torch.from_numpy(pixels.reshape(-1, 3, 32, 32)),
        torch.tensor([label for content in contents for label in content[labels]]),
    )


def _fetch(release: Release, root: Path) -> None:
    """Put the data set's files under the folder, all of them or none."""
    contents = f"the folder {release.folder} with the files {', '.join(release.files)}"
    with fetched(release.archive, root, name=release.name, contents=contents) as (archive, scratch):
        members = {f"{release.folder}/{file}": scratch / file for file in release.files}
        take_out(archive, members, most=MOST_BYTES)
        target = root / release.folder
        target.mkdir(exist_ok=True)
        for file in release.files:
            (scratch / file).replace(target / file)
