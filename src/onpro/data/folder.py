"""Images of the user: a folder with one subfolder per class."""

import logging
from collections.abc import Iterator
from pathlib import Path

from onpro.data.image_files import ImageFile, list_classes, split_by_class
from onpro.data.imageset import ImageSet, measured
from onpro.data.per_class import random_test_images
from onpro.errors import UserError, counted
from onpro.files import expand_home
from onpro.text import visible

LOG = logging.getLogger(__name__)

NAMED = 8
"""Classes whose images are counted one by one in the log."""

Files = dict[str, list[ImageFile]]
"""Sorted image files by sorted class name."""


def load_folder(
    path: Path, *, image_size: int = 32, seed: int = 0, limit_per_class: int | None = None
) -> ImageSet:
    """Load images from `path/train/<class>/` and `path/test/<class>/`, or from `path/<class>/`.

    In the second layout, a random fifth of each class (at least one image) is the test set. Classes
    and files are sorted by name. Hidden files and files without an image suffix are ignored. Images
    are rotated according to their EXIF orientation, converted to RGB (transparent pixels become
    white), resized so that the shorter side fits, and centre-cropped to a square. Images that do
    not fit into memory are decoded when needed.

    Args:
        path: the folder.
        image_size: side of the square images in pixels.
        seed: seed of the random split.
        limit_per_class: keep only the first so many training and test images of each class.
    """
    path = expand_home(path)
    try:
        train_files, test_files = _find(path, seed)
    except OSError as error:
        unreadable = error.filename or path
        raise UserError(f"the folder {unreadable} cannot be read: {error.strerror}.") from error
    _log_counts(path, train_files, test_files)
    name = path.resolve().name
    train, test = (
        split_by_class(
            path,
            [images[:limit_per_class] for images in files.values()],
            image_size,
            what=f"{part} images of {name}",
        )
        for part, files in (("training", train_files), ("test", test_files))
    )
    mean, std = measured(train)
    return ImageSet(
        name=f"folder-{name}",
        train=train,
        test=test,
        classes=tuple(train_files),
        mean=mean,
        std=std,
    )


def _log_counts(path: Path, train: Files, test: Files) -> None:
    """Log the classes found and their numbers of images."""
    each = [f"{name} {len(train[name])} + {len(test[name])}" for name in train]
    rest = f", and {len(each) - NAMED} more" if len(each) > NAMED else ""
    LOG.warning(
        "%s: %s, %d training + %d test images (%s%s)",
        visible(str(path)),
        f"{len(each)} classes",
        sum(map(len, train.values())),
        sum(map(len, test.values())),
        ", ".join(map(visible, each[:NAMED])),
        rest,
    )


def _find(path: Path, seed: int) -> tuple[Files, Files]:
    """Return the files of the training and of the test images."""
    if not path.is_dir():
        problem = "is a file" if path.exists() else "does not exist"
        raise UserError(
            f"the image folder {path} {problem}; correct the path in folder:PATH. A run that has "
            "begun needs it there."
        )
    if (path / "train").is_dir() and (path / "test").is_dir():
        return _existing_split(path)
    return _random_split(path, seed)


def _existing_split(path: Path) -> tuple[Files, Files]:
    train, test = _list(path, "train/"), _list(path, "test/")
    for name in test:
        if name not in train:
            raise UserError(
                f"the class '{name}' is in {path / 'test'} but not in {path / 'train'}; add"
                " training images of it or remove it."
            )
    _require_two_classes(train, path / "train")
    for name, part in ((name, part) for name in train for part in ("train", "test")):
        if not (train if part == "train" else test).get(name):
            raise UserError(
                f"the class '{name}' has no image in {path / part / name}; add one or remove the"
                " class."
            )
    return train, test


def _random_split(path: Path, seed: int) -> tuple[Files, Files]:
    files = _list(path)
    for part, other in (("train", "test"), ("test", "train")):
        if list(files) == [part]:
            raise UserError(
                f"{path} has a folder {part} but no folder {other}; add it, or give"
                f" folder:{path / part}, of which a fifth is set aside for testing."
            )
    _require_two_classes(files, path)
    for name, images in files.items():
        if len(images) < 2:
            raise UserError(
                f"the class '{name}' has {counted(len(images), 'image')} in {path / name} but needs"
                " 2, one to train and one to test with; add some or remove the class."
            )
    train: Files = {}
    test: Files = {}
    drawn = random_test_images([len(images) for images in files.values()], seed)
    for (name, images), chosen in zip(files.items(), drawn, strict=True):
        train[name] = [file for i, file in enumerate(images) if i not in chosen]
        test[name] = [file for i, file in enumerate(images) if i in chosen]
    return train, test


def _require_two_classes(files: Files, path: Path) -> None:
    if len(files) < 2:
        raise UserError(
            f"{path} has {counted(len(files), 'class folder')} but needs at least 2; add one"
            " subfolder of images per class, either to the folder itself or to train and test in"
            " it."
        )


def _list(path: Path, below: str = "") -> Files:
    """List the images of each class in a subfolder of `path`."""
    names = [entry.name for entry in _visible(path / below) if entry.is_dir()]
    return dict(zip(names, list_classes(path, [below + name for name in names]), strict=True))


def _visible(path: Path) -> Iterator[Path]:
    entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    return (entry for entry in entries if not entry.name.startswith("."))
