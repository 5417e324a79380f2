"""Decoded images kept in a file, so that thousands of small files are read only once."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)


def kept_images(
    path: Path, source: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor] | None:
    """The images in a file, unless it is missing, damaged, or made from something else.

    They lie in the file and not in memory until they are looked at: processes share them.

    Args:
        path: a file that `keep_images` wrote.
        source: what it was told.
        shapes: what the file has to hold.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            said = file.metadata() or {}
            images = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 # no dict
    except (SafetensorError, OSError) as error:
        LOG.warning("%s cannot be read (%s): it is made again.", path, error)
        return None
    if said.get("source") != source:
        LOG.warning("%s was made from other files: it is made again.", path)
        return None
    expected = {name: (torch.uint8, shape) for name, shape in shapes.items()}
    found = {name: (pixels.dtype, tuple(pixels.shape)) for name, pixels in images.items()}
    if found != expected or said.get("checksum") != _checksum(images):
        LOG.warning("%s is damaged: it is made again.", path)
        return None
    return images


def keep_images(path: Path, images: Mapping[str, Tensor], source: str) -> None:
    """Write images into a file that is there completely or not at all.

    A folder that cannot be written in is no reason to stop: the images are then made again.

    Args:
        path: the file.
        images: uint8, contiguous, on the CPU, by name.
        source: identifies what they were made from.
    """
    from safetensors.torch import save_file

    said = {"source": source, "checksum": _checksum(images)}
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".images-") as scratch:
            part = Path(scratch) / path.name
            part.touch()
            usual = part.stat().st_mode
            save_file(dict(images), part, said)
            part.chmod(usual)  # the library lets nobody else read it
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(path)
    except OSError as error:
        LOG.warning("%s cannot be written (%s): the next run reads all images again.", path, error)


def _checksum(images: Mapping[str, Tensor]) -> str:
    checksum = hashlib.sha256()
    for name in sorted(images):
        checksum.update(images[name].numpy().data)
    return checksum.hexdigest()
