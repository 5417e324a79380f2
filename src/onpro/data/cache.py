"""Cache decoded images in a file, so that thousands of image files are decoded only once."""

import hashlib
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

LOG = logging.getLogger(__name__)


def load_cached(
    path: Path, source: str, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Tensor] | None:
    """Load images from a cache file; return None if it is missing, damaged or outdated.

    The tensors are memory-mapped: processes share them, and pages are read when accessed.

    Args:
        path: a file that `save_cached` wrote.
        source: identifies what the images were decoded from.
        shapes: expected shapes by name.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            images = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 # no dict
    except (SafetensorError, OSError) as error:
        LOG.warning("%s cannot be read (%s): it is created again.", path, error)
        return None
    if metadata.get("source") != source:
        LOG.warning("%s was created from other files: it is created again.", path)
        return None
    expected = {name: (torch.uint8, shape) for name, shape in shapes.items()}
    found = {name: (pixels.dtype, tuple(pixels.shape)) for name, pixels in images.items()}
    if found != expected or metadata.get("checksum") != _checksum(images):
        LOG.warning("%s is damaged: it is created again.", path)
        return None
    return images


def save_cached(path: Path, images: Mapping[str, Tensor], source: str) -> None:
    """Write images to a cache file atomically; log a warning if it cannot be written.

    Args:
        path: the file.
        images: uint8, contiguous, on the CPU, by name.
        source: identifies what the images were decoded from.
    """
    from safetensors.torch import save_file

    metadata = {"source": source, "checksum": _checksum(images)}
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".images-") as scratch:
            part = Path(scratch) / path.name
            part.touch()
            mode = part.stat().st_mode
            save_file(dict(images), part, metadata)
            part.chmod(mode)  # safetensors makes the file private
            with part.open("rb") as file:
                os.fsync(file.fileno())
            part.replace(path)
    except OSError as error:
        LOG.warning(
            "%s cannot be written (%s): the next run decodes all images again.", path, error
        )


def _checksum(images: Mapping[str, Tensor]) -> str:
    checksum = hashlib.sha256()
    for name in sorted(images):
        checksum.update(images[name].numpy().data)
    return checksum.hexdigest()
