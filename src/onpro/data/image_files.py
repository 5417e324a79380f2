"""Image files, listed with their sizes."""

import errno
import hashlib
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch

from onpro.data.decode import Encoded, decode_image, looks_whole
from onpro.data.imageset import Split
from onpro.data.lazy import split_of
from onpro.data.progress import showing
from onpro.errors import UserError

SUFFIXES = frozenset(
    {".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
)
"""Files with other suffixes are ignored."""

CHUNK = 256
"""Files that a thread checks before it takes more."""


class ImageFile(NamedTuple):
    """An image file below a folder."""

    name: str
    """Path relative to the folder."""
    bytes: int


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Image files below a folder, as `Images`."""

    folder: Path
    files: Sequence[ImageFile]
    size: int
    """Side of the decoded images in pixels."""

    def __len__(self) -> int:
        return len(self.files)

    @cached_property
    def digest(self) -> str:
        """Digest of the names and sizes of the files, and of the size of the decoded images."""
        digest = hashlib.sha256(f"{self.size} px".encode())
        for file in self.files:
            digest.update(f"\n{file.bytes} {file.name}".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def encoded(self, index: int) -> Encoded:
        """Return an image."""
        path = os.path.join(self.folder, self.files[index].name)  # noqa: PTH118 # a million times
        return Encoded(path, path)

    def check(self) -> None:
        """Look at the first and last bytes of each file; decode those that look damaged."""
        starts = range(0, len(self), CHUNK)

        def check_chunk(start: int) -> None:
            for index in range(start, min(start + CHUNK, len(self))):
                image = self.encoded(index)
                try:
                    whole = looks_whole(image.name)
                except OSError as error:
                    raise UserError(
                        f"the image {image.name} cannot be read ({error.strerror}); "
                        "replace or remove it."
                    ) from error
                if not whole:
                    decode_image(image, self.size)

        title = f"checking {len(self)} images"
        with ThreadPoolExecutor() as pool, showing(title, len(self)) as advance:
            try:
                for start, _ in zip(starts, pool.map(check_chunk, starts), strict=True):
                    advance(min(CHUNK, len(self) - start))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def list_classes(folder: Path, classes: Sequence[str]) -> list[list[ImageFile]]:
    """List the images of each class, in threads; a class is a subfolder of `folder`."""
    with ThreadPoolExecutor() as pool, showing(f"listing {folder}", len(classes)) as advance:
        listed = []
        for images in pool.map(lambda name: list_images(folder, name), classes):
            listed.append(images)
            advance(1)
    return listed


def list_images(folder: Path, below: str = "") -> list[ImageFile]:
    """List the image files of a folder, sorted by name; hidden files are left out.

    Args:
        folder: the folder that names are relative to.
        below: subfolder to list.
    """
    found = []
    with os.scandir(folder / below) as entries:
        for entry in entries:
            name = entry.name
            suffix = os.path.splitext(name)[1].lower()  # noqa: PTH122 # a million times
            if suffix in SUFFIXES and not name.startswith("."):
                size = _size(entry)
                if size is not None:
                    found.append(ImageFile(f"{below}/{name}" if below else name, size))
    return sorted(found)


def _size(entry: "os.DirEntry[str]") -> int | None:
    """Return the size of a file in bytes; None if it is no file or a link that leads nowhere."""
    try:
        return os.stat(entry.path).st_size if entry.is_file() else None  # noqa: PTH116 # a million times
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ELOOP):
            return None
        raise


def split_by_class(
    folder: Path, files: Sequence[Sequence[ImageFile]], size: int, *, what: str
) -> Split:
    """Return the split of files that are listed class by class; see `split_of`."""
    images = ImageFiles(folder, [file for listed in files for file in listed], size)
    counts = torch.tensor([len(listed) for listed in files])
    return split_of(images, torch.arange(len(files)).repeat_interleave(counts), what=what)
