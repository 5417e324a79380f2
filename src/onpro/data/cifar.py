"""CIFAR-10 and CIFAR-100, read and downloaded by torchvision."""

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any

import torch

from onpro.data.archive import BadArchive, take_out
from onpro.data.imageset import ImageSet, Split, Triple
from onpro.data.location import data_folder
from onpro.errors import UserError

MEAN: Triple = (125.3 / 255, 123.0 / 255, 113.9 / 255)
"""Of CIFAR-10; the official code takes it for CIFAR-100 too, and so do we."""
STD: Triple = (63.0 / 255, 62.1 / 255, 66.7 / 255)
"""Of CIFAR-10; the official code takes it for CIFAR-100 too, and so do we."""

NETWORK_TIMEOUT = 30.0
"""Seconds without an answer until a download is given up; torchvision would wait for ever."""

MOST_BYTES = 2**28
"""Larger than any file of CIFAR, and small enough to do no harm."""


def cifar10(data_dir: Path | None = None) -> ImageSet:
    """CIFAR-10: 50000 training and 10000 test images of 32×32 pixels, 10 classes."""
    from torchvision.datasets import CIFAR10

    return _load("cifar10", CIFAR10, data_folder(data_dir))


def cifar100(data_dir: Path | None = None) -> ImageSet:
    """CIFAR-100: 50000 training and 10000 test images of 32×32 pixels, 100 classes."""
    from torchvision.datasets import CIFAR100

    return _load("cifar100", CIFAR100, data_folder(data_dir))


def _load(name: str, dataset: Any, root: Path) -> ImageSet:
    """Read torchvision's data set class from a folder, after a download where files are missing."""
    folder = root / dataset.base_folder
    if not all((folder / file).is_file() for file in _file_names(dataset)):
        _fetch(name, dataset, root)
    try:
        # The constructor unpickles no file whose checksum it has not compared.
        train, test = dataset(root, train=True), dataset(root, train=False)
    except RuntimeError as error:
        raise UserError(
            f"the {name} files in {folder} are damaged (a checksum differs); remove that folder to"
            " download them again, or give another one with --data-dir DIR or ONPRO_DATA."
        ) from error
    except OSError as error:
        raise UserError(f"the {name} files in {folder} cannot be read: {error}.") from error
    return ImageSet(
        name=name,
        train=_split(train),
        test=_split(test),
        classes=tuple(train.classes),
        mean=MEAN,
        std=STD,
    )


def _file_names(dataset: Any) -> list[str]:
    batches = [file for file, _ in dataset.train_list + dataset.test_list]
    return [*batches, dataset.meta["filename"]]


def _split(dataset: Any) -> Split:
    images = torch.from_numpy(dataset.data).permute(0, 3, 1, 2).contiguous()
    return Split(images, torch.tensor(dataset.targets, dtype=torch.int64))


def _fetch(name: str, dataset: Any, root: Path) -> None:
    """Put the data set's files under the folder, all of them or none.

    Download and extraction happen in a temporary folder beside the target, which goes away however
    that ends. An archive the user has put into the folder is taken instead of the network's. None
    is opened before its checksum has been compared.
    """
    from torchvision.datasets.utils import check_integrity, download_url

    archive = root / dataset.filename
    local = archive.is_file()
    if local and not check_integrity(archive, dataset.tgz_md5):
        raise UserError(
            f"the archive {archive} is damaged (its checksum differs); remove it or replace it."
        )
    try:
        with tempfile.TemporaryDirectory(dir=root, prefix=".download-") as scratch, _timeout():
            if not local:
                download_url(dataset.url, scratch, dataset.filename, dataset.tgz_md5)
                archive = Path(scratch) / dataset.filename
            members = [f"{dataset.base_folder}/{file}" for file in _file_names(dataset)]
            take_out(archive, members, Path(scratch), most=MOST_BYTES)
            target = root / dataset.base_folder
            target.mkdir(exist_ok=True)
            for file in _file_names(dataset):
                (Path(scratch) / file).replace(target / file)
    except BadArchive as error:
        raise UserError(
            f"the archive {dataset.filename} is not {name}'s: {error}; remove or replace it."
        ) from error
    except (OSError, HTTPException, RuntimeError) as error:
        raise UserError(
            f"{name} is not in {root} and cannot be downloaded there ({error}); expected is the"
            f" folder {dataset.base_folder} with the files {', '.join(_file_names(dataset))}, or"
            f" the archive {dataset.filename} from {dataset.url}; give another folder with"
            " --data-dir DIR or ONPRO_DATA."
        ) from error


@contextmanager
def _timeout() -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(NETWORK_TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
