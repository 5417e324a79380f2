"""What a stream yields."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, slots=True)
class Batch:
    """A few images that arrive together, on the device, and what the host knows of them."""

    images: Tensor
    """uint8 (n, 3, height, width)."""
    labels: Tensor
    """int64 (n,)."""
    task: int | None
    """Index of the task from 0; None where nobody announces boundaries."""
    classes: tuple[int, ...]
    """The distinct labels, sorted, as numbers of the host: reading them waits for no device."""

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.shape[1] != 3:
            raise ValueError("images of a batch must have the shape (n, 3, height, width)")
        if self.labels.dtype != torch.int64 or self.labels.shape != self.images.shape[:1]:
            raise ValueError("labels of a batch must be int64, one for each image")

    def __len__(self) -> int:
        return len(self.labels)
