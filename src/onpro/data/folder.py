"""A user's own images: a folder with one subfolder a class."""

from collections.abc import Iterator
from pathlib import Path

import torch

from onpro.data.imageset import ImageSet, Split, measure
from onpro.errors import UserError, counted

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Files with other endings are not taken for images."""

TEST_SHARE = 0.2
"""Share of each class's images that is the test set where the folder has none of its own."""

Files = dict[str, list[Path]]
"""Image files by class name; both sorted."""


def folder(path: Path, *, image_size: int = 32, seed: int = 0) -> ImageSet:
    """Images in `path/train/<class>/` and `path/test/<class>/`, or in `path/<class>/`.

    In the second layout the seed draws a fifth of each class (at least one image, never all) as the
    test set. Classes and files come in the order of their names. Hidden files and files that are no
    images by their ending are passed over. Every image is turned upright as its EXIF data say,
    becomes RGB (what is transparent becomes white), and is resized so that its shorter side fits
    and cropped in the middle to a square.

    Args:
        path: the folder.
        image_size: side of the square images in pixels.
        seed: of the split, where there is one to draw.
    """
    path = path.expanduser()
    try:
        train_files, test_files = _find(path, seed)
    except OSError as error:
        place = error.filename or path
        raise UserError(f"the folder {place} cannot be read: {error.strerror}.") from error
    train = _read(train_files, image_size)
    mean, std = measure(train.images)
    return ImageSet(
        name=f"folder-{path.resolve().name}",
        train=train,
        test=_read(test_files, image_size),
        classes=tuple(train_files),
        mean=mean,
        std=std,
    )


def _find(path: Path, seed: int) -> tuple[Files, Files]:
    """The files of the training and of the test images."""
    if not path.is_dir():
        fault = "is a file" if path.exists() else "does not exist"
        raise UserError(f"the image folder {path} {fault}.")
    if (path / "train").is_dir() and (path / "test").is_dir():
        return _ready_split(path)
    return _drawn_split(path, seed)


def _ready_split(path: Path) -> tuple[Files, Files]:
    train, test = _list(path / "train"), _list(path / "test")
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


def _drawn_split(path: Path, seed: int) -> tuple[Files, Files]:
    files = _list(path)
    _require_two_classes(files, path)
    generator = torch.Generator().manual_seed(seed)
    train: Files = {}
    test: Files = {}
    for name, images in files.items():
        if len(images) < 2:
            raise UserError(
                f"the class '{name}' has {counted(len(images), 'image')} in {path / name} but needs"
                " 2, one to train and one to test with; add some or remove the class."
            )
        count = max(1, round(TEST_SHARE * len(images)))
        chosen = set(torch.randperm(len(images), generator=generator)[:count].tolist())
        train[name] = [file for i, file in enumerate(images) if i not in chosen]
        test[name] = [file for i, file in enumerate(images) if i in chosen]
    return train, test


def _require_two_classes(files: Files, path: Path) -> None:
    if len(files) < 2:
        raise UserError(
            f"{path} has {counted(len(files), 'class folder')} but needs at least 2: one subfolder"
            " of images for each class, either in the folder itself or in train and test in it."
        )


def _list(path: Path) -> Files:
    return {entry.name: _images(entry) for entry in _visible(path) if entry.is_dir()}


def _images(path: Path) -> list[Path]:
    return [file for file in _visible(path) if file.suffix.lower() in SUFFIXES and file.is_file()]


def _visible(path: Path) -> Iterator[Path]:
    entries = sorted(path.iterdir(), key=lambda entry: entry.name)
    return (entry for entry in entries if not entry.name.startswith("."))


def _read(files: Files, size: int) -> Split:
    from onpro.data.decode import decode_all

    paths = [file for images in files.values() for file in images]
    labels = [label for label, images in enumerate(files.values()) for _ in images]
    return Split(decode_all(paths, size), torch.tensor(labels, dtype=torch.int64))
