"""Tiny ImageNet: 200 classes of ImageNet as images of 64×64 pixels, from the files of its authors.

Its validation images are the test set, for the authors have published no labels of the test images.
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

from onpro.data.archive import BadArchive, take_out
from onpro.data.download import Archive, fetched
from onpro.data.imageset import ImageSet, Split, Triple
from onpro.data.keeping import keep_images, kept_images
from onpro.data.location import data_folder
from onpro.data.progress import saying
from onpro.errors import UserError

LOG = logging.getLogger(__name__)

MEAN: Triple = (0.4802, 0.4480, 0.3975)
"""As the official code normalises."""
STD: Triple = (0.2770, 0.2691, 0.2821)
"""As the official code normalises."""

SIZE = 64
CLASSES = 200
TRAIN_PER_CLASS = 500
TEST_PER_CLASS = 50

FOLDER = "tiny-imagenet-200"
ARCHIVE = Archive(
    file=f"{FOLDER}.zip",
    size=248_100_043,
    md5="90528d7ca1a48142e341f4ef8d21d0de",
    url=f"http://cs231n.stanford.edu/{FOLDER}.zip",
)
MOST_BYTES = 2**30
"""Larger than all files we take out of the archive, and small enough to do no harm."""

WNIDS, WORDS, ANNOTATIONS = "wnids.txt", "words.txt", "val/val_annotations.txt"


def tinyimagenet(data_dir: Path | None = None) -> ImageSet:
    """Tiny ImageNet: 100000 training and 10000 test images of 64×64 pixels, 200 classes.

    Classes come in the order of their WordNet ids and have the first of their names, or the id
    where two would have the same. The decoded images are kept in a file beside the folder.

    Args:
        data_dir: the folder with `tiny-imagenet-200` in it, or where it is extracted or downloaded.
    """
    root = data_folder(data_dir)
    if not (root / FOLDER).is_dir():
        _fetch(root)
    try:
        files = _list(root / FOLDER)
    except _Incomplete as error:
        raise UserError(
            f"the folder {root / FOLDER} is not Tiny ImageNet as published: {error}; remove"
            f" {FOLDER} to extract or download it again, or give another folder with --data-dir DIR"
            " or ONPRO_DATA."
        ) from error
    except OSError as error:
        raise UserError(f"the folder {root / FOLDER} cannot be read: {error}.") from error
    images = _images(files, root / f"{FOLDER}.safetensors")
    return ImageSet(
        name="tinyimagenet",
        train=Split(images["train"], _labels(files.train)),
        test=Split(images["test"], _labels(files.test)),
        classes=files.classes,
        mean=MEAN,
        std=STD,
    )


class _Incomplete(Exception):  # noqa: N818 # its message is half a sentence of an error
    """A folder does not hold what it should."""


@dataclass(frozen=True)
class _Image:
    folder: Path
    name: str
    size: int
    """Of the file, in bytes."""
    label: int


@dataclass(frozen=True)
class _Files:
    classes: tuple[str, ...]
    train: list[_Image]
    test: list[_Image]

    def fingerprint(self) -> str:
        """Tells these files from others, by their names, sizes and labels."""
        images = [*self.train, *self.test]
        lines = (f"{image.label} {image.name} {image.size}" for image in images)
        return hashlib.sha256("\n".join(lines).encode(errors="surrogateescape")).hexdigest()


def _list(folder: Path) -> _Files:
    """All files of the folder that count, each where it should be."""
    wnids = _wnids(folder / WNIDS)
    train = [
        _Image(images, name, size, label)
        for label, wnid in enumerate(wnids)
        for images in [folder / "train" / wnid / "images"]
        for name, size in _sizes(images, TRAIN_PER_CLASS).items()
    ]
    return _Files(_class_names(folder / WORDS, wnids), train, _annotated(folder, wnids))


def _wnids(path: Path) -> list[str]:
    """WordNet ids of the classes, in the order of the classes."""
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
    """The validation images in the order in which they are annotated."""
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
    """Sizes in bytes of the images in a folder, by name, in the order of the names."""
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


def _images(files: _Files, cache: Path) -> dict[str, Tensor]:
    """Pixels of both splits, from the cache where it was made from the same files."""
    source = f"{SIZE} px, {files.fingerprint()}"
    shapes = {"train": (len(files.train), 3, SIZE, SIZE), "test": (len(files.test), 3, SIZE, SIZE)}
    images = kept_images(cache, source, shapes)
    if images is None:
        images = _decoded(files)
        keep_images(cache, images, source)
    return images


def _decoded(files: _Files) -> dict[str, Tensor]:
    from onpro.data.decode import decode_all

    paths = [image.folder / image.name for image in [*files.train, *files.test]]
    what = f"decoding {len(paths)} images of Tiny ImageNet"
    LOG.warning("%s, which is done once", what)
    pixels = decode_all(paths, SIZE, saying(what, len(paths)))
    return {"train": pixels[: len(files.train)], "test": pixels[len(files.train) :]}


def _fetch(root: Path) -> None:
    """Put the folder where it belongs, with all files that count or not at all."""
    contents = f"the folder {FOLDER} as published"
    with fetched(ARCHIVE, root, name="tinyimagenet", contents=contents) as (archive, scratch):
        LOG.warning("extracting %s", ARCHIVE.file)
        texts = {
            f"{FOLDER}/{file}": scratch / FOLDER / file for file in (WNIDS, WORDS, ANNOTATIONS)
        }
        _take_out(archive, texts)
        try:
            wnids = _wnids(scratch / FOLDER / WNIDS)
        except _Incomplete as error:
            raise BadArchive(str(error)) from error
        names = [f"train/{w}/images/{w}_{k}.JPEG" for w in wnids for k in range(TRAIN_PER_CLASS)]
        names += [f"val/images/val_{k}.JPEG" for k in range(CLASSES * TEST_PER_CLASS)]
        _take_out(archive, {f"{FOLDER}/{name}": scratch / FOLDER / name for name in names})
        try:
            (scratch / FOLDER).rename(root / FOLDER)
        except OSError:
            if not (root / FOLDER).is_dir():  # unless another process was faster
                raise


def _take_out(archive: Path, members: dict[str, Path]) -> None:
    for folder in {path.parent for path in members.values()}:
        folder.mkdir(parents=True, exist_ok=True)
    take_out(archive, members, most=MOST_BYTES)
