"""Storage of all images of the current task."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor


class TaskImages:
    """The batches of the current task, for methods that need all of them at its end."""

    def __init__(self, image_shape: tuple[int, int, int], device: torch.device) -> None:
        self.image_shape = image_shape
        self.device = device
        self.clear()

    def clear(self) -> None:
        """Remove all batches."""
        self._images: list[Tensor] = []
        self._labels: list[Tensor] = []

    def add(self, images: Tensor, labels: Tensor) -> None:
        """Store a batch: uint8 images (n, 3, height, width) and labels (n,)."""
        self._images.append(images.clone())
        self._labels.append(labels.clone())

    def whole_batches(self) -> tuple[Tensor, Tensor]:
        """Return images and labels, without the last batch if it is smaller than the previous."""
        sizes = [len(labels) for labels in self._labels]
        whole = len(sizes) - (len(sizes) > 1 and sizes[-1] < sizes[-2])
        return torch.cat(self._images[:whole]), torch.cat(self._labels[:whole])

    def remove(self, label: int) -> None:
        """Erase all images of a class; a host–device sync."""
        kept = [labels != label for labels in self._labels]
        self._images = [images[k] for images, k in zip(self._images, kept, strict=True)]
        self._labels = [labels[k] for labels, k in zip(self._labels, kept, strict=True)]

    def state_dict(self) -> dict[str, Any]:
        """Return the batches."""
        return {"images": list(self._images), "labels": list(self._labels)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the batches from `state_dict`."""
        for images, labels in zip(state["images"], state["labels"], strict=True):
            shape, dtypes = (len(labels), *self.image_shape), (images.dtype, labels.dtype)
            if images.shape != shape or dtypes != (torch.uint8, torch.int64) or labels.ndim != 1:
                raise ValueError(
                    "the state's task images have another shape or type than the stream's"
                )
        self._images = [images.to(self.device) for images in state["images"]]
        self._labels = [labels.to(self.device) for labels in state["labels"]]
