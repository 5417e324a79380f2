"""Tiny ImageNet: 200 classes of ImageNet at 64×64 pixels.

The validation images are the test set, because the labels of the test images are not published.
"""

import hashlib
import logging
import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from onpro.data.cache import load_cached, save_cached
from onpro.data.download import Archive, data_folder, fetch
from onpro.data.imageset import ImageSet, Split, Triple
from onpro.data.per_class import first_per_class
from onpro.errors import UserError

LOG = logging.getLogger(__name__)

MEAN: Triple = (0.4802, 0.4480, 0.3975)
"""As in the official code."""
STD: Triple = (0.2770, 0.2691, 0.2821)
"""As in the official code."""

SIZE = 64
CLASSES = 200
TRAIN_PER_CLASS = 500
TEST_PER_CLASS = 50

FOLDER = "tiny-imagenet-200"
ARCHIVE = Archive(
    name="tinyimagenet",
    url=f"http://cs231n.stanford.edu/{FOLDER}.zip",
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    folder=FOLDER,
)

WNIDS, WORDS, ANNOTATIONS = "wnids.txt", "words.txt", "val/val_annotations.txt"


def load_tinyimagenet(data_dir: Path | None = None, limit: int | None = None) -> ImageSet:
    """Load Tiny ImageNet: 100000 training and 10000 test images of 64×64 pixels, 200 classes.

    Classes are sorted by WordNet id. A class is named by the first of its words, or by its id if
    that word is not unique. The decoded images are cached in a file next to the folder.

    Args:
        data_dir: the folder that contains `tiny-imagenet-200`, or in which it is downloaded.
        limit: number of training and test images of each class; unless there is a cache, no others
            are decoded, and no cache is written.
    """
    root = data_folder(data_dir)
    if not (root / FOLDER).is_dir():
        fetch(ARCHIVE, root)
    try:
        files = _list(root / FOLDER)
    except _Incomplete as error:
        raise UserError(
            f"the folder {root / FOLDER} is not Tiny ImageNet as published: {error}; remove"
            f" {FOLDER} to download it again, or give another folder with --data-dir DIR or"
            " ONPRO_DATA."
        ) from error
    except OSError as error:
        raise UserError(f"the folder {root / FOLDER} cannot be read: {error}.") from error
    cache, source = root / f"{FOLDER}.safetensors", f"{SIZE} px, {files.fingerprint()}"
    images = load_cached(cache, source, files.shapes())
    if images is None and limit is not None:
        files = files.limited(limit)
        images = _decode(files, f"at most {limit} training and {limit} test images of each class")
    elif images is None:
        images = _decode(files, "once")
        save_cached(cache, images, source)
    return ImageSet(
        name="tinyimagenet",
        train=Split(images["train"], _labels(files.train)),
        test=Split(images["test"], _labels(files.test)),
        classes=files.classes,
        mean=MEAN,
        std=STD,
    )


class _Incomplete(Exception):  # noqa: N818 # its message is part of a sentence
    """Files of the folder are missing or wrong."""


@dataclass(frozen=True)
class _Image:
    folder: Path
    name: str
    size: int
    """Size of the file in bytes."""
    label: int


@dataclass(frozen=True)
class _Files:
    classes: tuple[str, ...]
    train: list[_Image]
    test: list[_Image]

    def fingerprint(self) -> str:
        """Return a digest of the names, sizes and labels of the images."""
        images = [*self.train, *self.test]
        lines = (f"{image.label} {image.name} {image.size}" for image in images)
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the decoded images."""
        counts = {"train": len(self.train), "test": len(self.test)}
        return {part: (count, 3, SIZE, SIZE) for part, count in counts.items()}

    def limited(self, limit: int) -> "_Files":
        """Return the first `limit` training and test images of each class."""
        train, test = (
            [images[k] for k in first_per_class([image.label for image in images], limit)]
            for images in (self.train, self.test)
        )
        return _Files(self.classes, train, test)


def _list(folder: Path) -> _Files:
    """List the images of the folder; raise `_Incomplete` if files are missing or wrong."""
    wnids = _wnids(folder / WNIDS)
    train = [
        _Image(images, name, size, label)
        for label, wnid in enumerate(wnids)
        for images in [folder / "train" / wnid / "images"]
        for name, size in _sizes(images, TRAIN_PER_CLASS).items()
    ]
    return _Files(_class_names(folder / WORDS, wnids), train, _annotated(folder, wnids))


def _wnids(path: Path) -> list[str]:
    """Read the sorted WordNet ids of the classes."""
    wnids = sorted(set(_text(path).split()))
    if len(wnids) != CLASSES or not all(re.fullmatch(r"n\d{8}", wnid) for wnid in wnids):
        raise _Incomplete(f"{path.name} does not list {CLASSES} WordNet ids")
    return wnids


def _class_names(path: Path, wnids: list[str]) -> tuple[str, ...]:
    lines = (line.partition("\t") for line in _text(path).splitlines())
    words = {wnid: names.partition(",")[0].strip() for wnid, _, names in lines}
    names = [words.get(wnid) or wnid for wnid in wnids]
    count = Counter(names)
    return tuple(
        name if count[name] == 1 else wnid for name, wnid in zip(names, wnids, strict=True)
    )


def _annotated(folder: Path, wnids: list[str]) -> list[_Image]:
    """List the validation images in the order of their annotations."""
    sizes = _sizes(folder / "val" / "images", CLASSES * TEST_PER_CLASS)
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    lines = (line.split("\t") for line in _text(folder / ANNOTATIONS).splitlines())
    annotated = {line[0]: labels[line[1]] for line in lines if line[1:] and line[1] in labels}
    counts = set(Counter(annotated.values()).values())
    if annotated.keys() != sizes.keys() or counts != {TEST_PER_CLASS}:
        raise _Incomplete(f"{ANNOTATIONS} does not name {TEST_PER_CLASS} images of each class")
    images = folder / "val" / "images"
    return [_Image(images, name, sizes[name], label) for name, label in annotated.items()]


def _sizes(folder: Path, count: int) -> dict[str, int]:
    """Return the sizes in bytes of the images in a folder, by sorted name."""
    if not folder.is_dir():
        raise _Incomplete(f"there is no folder {folder}")
    with os.scandir(folder) as entries:
        sizes = {
            entry.name: entry.stat().st_size
            for entry in entries
            if entry.name.endswith(".JPEG") and not entry.name.startswith(".")
        }
    if len(sizes) != count:
        raise _Incomplete(f"{folder} has {len(sizes)} images, not {count}")
    return dict(sorted(sizes.items()))


def _text(path: Path) -> str:
    if not path.is_file():
        raise _Incomplete(f"there is no file {path}")
    return path.read_text(encoding="utf-8", errors="replace")


def _labels(images: list[_Image]) -> Tensor:
    return torch.tensor([image.label for image in images], dtype=torch.int64)


def _decode(files: _Files, which: str) -> dict[str, Tensor]:
    from onpro.data.image_files import ImageFile, ImageFiles
    from onpro.data.workers import decode_all

    listed = [*files.train, *files.test]
    images = [ImageFile(str(image.folder / image.name), image.size) for image in listed]
    title = f"decoding {len(images)} images of Tiny ImageNet"
    LOG.warning("%s, %s", title, which)
    decoded = decode_all(ImageFiles(Path(), images, SIZE), range(len(images)), title)
    pixels = torch.from_numpy(decoded)
    return {"train": pixels[: len(files.train)], "test": pixels[len(files.train) :]}
