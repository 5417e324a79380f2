"""CIFAR-10 and CIFAR-100.

torchvision reads the same files, but importing it also imports torch's compiler, which takes
several seconds in every process; reading the files takes half a second.
"""

import hashlib
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from onpro.data.download import Archive, data_folder, fetch
from onpro.data.imageset import ImageSet, Split, Triple
from onpro.errors import UserError

MEAN: Triple = (125.3 / 255, 123.0 / 255, 113.9 / 255)
"""Mean of CIFAR-10; used for CIFAR-100 too, as in the official code."""
STD: Triple = (63.0 / 255, 62.1 / 255, 66.7 / 255)
"""Standard deviation of CIFAR-10; used for CIFAR-100 too, as in the official code."""


@dataclass(frozen=True)
class Release:
    """The published archive and the MD5 checksums of the files in it."""

    archive: Archive
    train: dict[str, str]
    test: dict[str, str]
    meta: dict[str, str]
    labels: str
    """Key of the labels in the training and test files."""
    classes: str
    """Key of the class names in the meta file."""


CIFAR10 = Release(
    archive=Archive(
        name="cifar10",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
        md5="c58f30108f718f92721af3b95e74349a",
        folder="cifar-10-batches-py",
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
    labels="labels",
    classes="label_names",
)

CIFAR100 = Release(
    archive=Archive(
        name="cifar100",
        url="https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
        md5="eb9058c3a382ffc7106e4002c42a8d85",
        folder="cifar-100-python",
    ),
    train={"train": "16019d7e3df5f24257cddd939b257f8d"},
    test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    meta={"meta": "7973b15100ade9c7d40fb424638fde48"},
    labels="fine_labels",
    classes="fine_label_names",
)


def load_cifar10(data_dir: Path | None = None) -> ImageSet:
    """Load CIFAR-10: 50000 training and 10000 test images of 32×32 pixels, 10 classes."""
    return _load(CIFAR10, data_folder(data_dir))


def load_cifar100(data_dir: Path | None = None) -> ImageSet:
    """Load CIFAR-100: 50000 training and 10000 test images of 32×32 pixels, 100 classes."""
    return _load(CIFAR100, data_folder(data_dir))


def _load(release: Release, root: Path) -> ImageSet:
    """Read a CIFAR from `root`; download it first if files are missing."""
    name, folder = release.archive.name, root / release.archive.folder
    if not all((folder / file).is_file() for file in release.train | release.test | release.meta):
        fetch(release.archive, root)
    try:
        train, test, (meta,) = (
            [_read(folder / file, md5) for file, md5 in files.items()]
            for files in (release.train, release.test, release.meta)
        )
    except _Damaged as error:
        raise UserError(
            f"the {name} files in {folder} are damaged (the checksum of {error} differs); remove"
            " that folder to download them again, or give another one with --data-dir DIR or"
            " ONPRO_DATA."
        ) from error
    except OSError as error:
        raise UserError(f"the {name} files in {folder} cannot be read: {error}.") from error
    return ImageSet(
        name=name,
        train=_split(train, release.labels),
        test=_split(test, release.labels),
        classes=tuple(meta[release.classes]),
        mean=MEAN,
        std=STD,
    )


class _Damaged(Exception):  # noqa: N818 # its message is the name of the file
    """The checksum of a file differs."""


def _read(path: Path, md5: str) -> dict[str, Any]:
    """Unpickle a file if its checksum is right."""
    content = path.read_bytes()
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
        raise _Damaged(path.name)
    entries: dict[str, Any] = pickle.loads(content, encoding="latin1")
    return entries


def _split(files: Sequence[dict[str, Any]], labels: str) -> Split:
    pixels = np.concatenate([file["data"] for file in files])
    return Split(
        torch.from_numpy(pixels.reshape(-1, 3, 32, 32)),
        torch.tensor([label for file in files for label in file[labels]]),
    )
