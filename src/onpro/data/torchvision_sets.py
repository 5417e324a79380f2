"""Data sets that torchvision downloads and reads.

The table is plain values, so that listing the data sets does not import torchvision. A set is
either arrays, or a list of image files, which is decoded like a folder of the user.
"""

import logging
import os
import socket
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onpro.data.download import TIMEOUT, data_folder
from onpro.data.registry import Request
from onpro.errors import UserError

if TYPE_CHECKING:
    from onpro.data.imageset import ImageSet, Split

LOG = logging.getLogger(__name__)

Part = Mapping[str, Any]
"""Arguments of a torchvision data set that select a part of it."""

TEST_SHARE = 5
"""Of a set without a test part, the last fifth of each class is the test set."""


@dataclass(frozen=True)
class TorchvisionSet:
    """A data set of torchvision."""

    name: str
    kind: str
    """Name of the class in `torchvision.datasets`."""
    description: str
    images: int
    """Number of training and test images."""
    folder: str
    """What it is in the data folder."""
    classes: int
    image_size: int
    """Side of the images in pixels: that of the arrays; for image files a default of ours."""
    train: tuple[Part, ...] = ({"split": "train"},)
    test: tuple[Part, ...] = ({"split": "test"},)
    tasks: int = 10
    arrays: bool = False
    """Whether it is arrays instead of image files."""
    listed: tuple[str, ...] = ()
    """Attributes with the files and labels, where the class does not take a `loader`."""


MNIST_PARTS: dict[str, Any] = {
    "classes": 10,
    "image_size": 28,
    "train": ({"train": True},),
    "test": ({"train": False},),
    "tasks": 5,
    "arrays": True,
}

SETS = (
    TorchvisionSet("mnist", "MNIST", "MNIST, handwritten digits", 70000, "MNIST", **MNIST_PARTS),
    TorchvisionSet(
        "fashionmnist",
        "FashionMNIST",
        "Fashion-MNIST, clothes",
        70000,
        "FashionMNIST",
        **MNIST_PARTS,
    ),
    TorchvisionSet("kmnist", "KMNIST", "Kuzushiji-MNIST", 70000, "KMNIST", **MNIST_PARTS),
    TorchvisionSet(
        "svhn",
        "SVHN",
        "Street View House Numbers",
        99289,
        "train_32x32.mat",
        classes=10,
        image_size=32,
        tasks=5,
        arrays=True,
    ),
    TorchvisionSet(
        "stl10",
        "STL10",
        "STL-10, photographs",
        13000,
        "stl10_binary",
        classes=10,
        image_size=96,
        tasks=5,
        arrays=True,
    ),
    TorchvisionSet(
        "eurosat",
        "EuroSAT",
        "EuroSAT, satellite images",
        27000,
        "eurosat",
        classes=10,
        image_size=64,
        train=({},),
        test=(),
        tasks=5,
    ),
    TorchvisionSet(
        "imagenette",
        "Imagenette",
        "ten classes of ImageNet",
        13394,
        "imagenette2",
        classes=10,
        image_size=64,
        test=({"split": "val"},),
        tasks=5,
    ),
    TorchvisionSet("food101", "Food101", "Food-101, dishes", 101000, "food-101", 101, 64),
    TorchvisionSet(
        "flowers102",
        "Flowers102",
        "Oxford Flowers",
        8189,
        "flowers-102",
        classes=102,
        image_size=64,
        train=({"split": "train"}, {"split": "val"}),
    ),
    TorchvisionSet(
        "pets",
        "OxfordIIITPet",
        "Oxford-IIIT Pets",
        7349,
        "oxford-iiit-pet",
        classes=37,
        image_size=64,
        train=({"split": "trainval"},),
        listed=("_images", "_labels"),
    ),
    TorchvisionSet(
        "dtd",
        "DTD",
        "Describable Textures",
        5640,
        "dtd",
        classes=47,
        image_size=64,
        train=({"split": "train"}, {"split": "val"}),
    ),
    TorchvisionSet(
        "aircraft",
        "FGVCAircraft",
        "FGVC Aircraft, variants",
        10000,
        "fgvc-aircraft-2013b",
        classes=100,
        image_size=64,
        train=({"split": "trainval"},),
    ),
    TorchvisionSet(
        "gtsrb",
        "GTSRB",
        "German traffic signs",
        39270,
        "gtsrb",
        classes=43,
        image_size=32,
        listed=("_samples",),
    ),
)


def load_torchvision(entry: TorchvisionSet, request: Request) -> "ImageSet":
    """Load a data set of torchvision; download it first if it is not in the data folder.

    Image files are decoded at the size and in the number requested; arrays are all loaded.
    """
    from onpro.data.imageset import ImageSet, measured

    root = data_folder(request.data_dir)
    parts = {
        what: [_open(entry, root, part) for part in given]
        for what, given in (("training", entry.train), ("test", entry.test))
    }
    if entry.arrays:
        train, test = (_from_arrays(found) for found in parts.values())
    else:
        train, test = _from_files(entry, root, parts, request)
    mean, std = measured(train)
    names = getattr(parts["training"][0], "classes", None)
    if names is None or len(names) != entry.classes:
        names = range(entry.classes)
    return ImageSet(entry.name, train, test, tuple(map(str, names)), mean, std)


def _open(entry: TorchvisionSet, root: Path, part: Part) -> Any:
    """Return a part of a data set, downloaded if it is not there."""
    from torchvision import datasets

    kind = getattr(datasets, entry.kind)
    given = dict(part) if entry.arrays or entry.listed else {**part, "loader": _keep_path}
    try:
        return kind(root, **given)
    except (RuntimeError, FileNotFoundError):  # it is not there, or damaged
        LOG.warning("downloading %s to %s", entry.name, root)
    try:
        with _timeout():
            return kind(root, download=True, **given)
    except (RuntimeError, OSError, HTTPException, tarfile.TarError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{entry.name} is not in {root} and cannot be downloaded there ({error}); put"
            f" {entry.folder} there as torchvision's {entry.kind} expects it, or give another"
            " folder with --data-dir DIR or ONPRO_DATA."
        ) from error


def _keep_path(path: str | Path) -> str:
    """The loader that torchvision calls: return the path instead of an image."""
    return str(path)


@contextmanager
def _timeout() -> Iterator[None]:
    """Limit how long a download waits for a response; torchvision itself waits forever."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)


def _from_arrays(parts: Sequence[Any]) -> "Split":
    import torch

    from onpro.data.arrays import as_images
    from onpro.data.imageset import Split

    (part,) = parts
    labels = part.targets if hasattr(part, "targets") else part.labels
    return Split(as_images(part.data), torch.as_tensor(labels).long())


def _from_files(
    entry: TorchvisionSet,
    root: Path,
    parts: Mapping[str, Iterable[Any]],
    request: Request,
) -> "tuple[Split, Split]":
    from onpro.data.image_files import ImageFile, split_by_class

    size, limit = request.image_size, request.limit_per_class
    assert size  # as registered
    files: dict[str, list[list[ImageFile]]] = {}
    for what, found in parts.items():
        files[what] = [[] for _ in range(entry.classes)]
        for part in found:
            for path, label in _listed(entry, part):
                name = os.path.relpath(path, root)
                files[what][label].append(ImageFile(name, os.stat(path).st_size))  # noqa: PTH116
    if not entry.test:
        everything = files["training"]
        counts = [len(images) // TEST_SHARE for images in everything]
        both = list(zip(everything, counts, strict=True))
        files["training"] = [images[: len(images) - count] for images, count in both]
        files["test"] = [images[len(images) - count :] for images, count in both]
    train, test = (
        split_by_class(
            root,
            [images[:limit] for images in files[what]],
            size,
            what=f"{what} images of {entry.name}",
        )
        for what in ("training", "test")
    )
    return train, test


def _listed(entry: TorchvisionSet, part: Any) -> Iterator[tuple[str, int]]:
    """Yield path and label of each image."""
    columns = [getattr(part, name) for name in entry.listed]
    if len(columns) == 2:
        yield from zip(map(str, columns[0]), columns[1], strict=True)
    else:
        yield from columns[0] if columns else (part[index] for index in range(len(part)))
