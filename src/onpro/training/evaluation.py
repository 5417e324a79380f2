"""Evaluate a method: confusion matrix and accuracies."""

from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor

from onpro.data.imageset import Split
from onpro.methods.registry import AnyMethod

TEST_BATCH = 1000
"""Number of test images predicted at a time."""


def confusion_matrix(method: AnyMethod, splits: Iterable[Split], classes: int) -> Tensor:
    """Return the counts (classes, classes) by true (row) and predicted class, on the CPU."""
    cells = torch.zeros(classes * classes, dtype=torch.int64, device=method.context.device)
    for split in splits:
        everything = torch.arange(len(split), device=split.labels.device)
        for part in split.batches(everything.split(TEST_BATCH)):
            cell = part.labels * classes + method.predict(part.images)
            cells += torch.bincount(cell, minlength=classes * classes)
    return cells.view(classes, classes).cpu()


def accuracies(confusion: Tensor, task_classes: Sequence[Collection[int]]) -> list[float]:
    """Return the accuracy in percent on each task, predictions made among all classes."""
    return [accuracy_on(confusion, labels) for labels in task_classes]


def class_accuracies(confusion: Tensor) -> list[float | None]:
    """Return the accuracy in percent on each class, to 2 digits; None if it has no test image."""
    images = confusion.sum(dim=1).tolist()
    right = confusion.diagonal().tolist()
    return [round(100 * r / n, 2) if n else None for r, n in zip(right, images, strict=True)]


def accuracy_on(confusion: Tensor, labels: Collection[int]) -> float:
    """Return the accuracy in percent on the test images of some classes; 0 if they have none."""
    rows = torch.tensor(sorted(labels))
    right, images = confusion.diagonal()[rows].sum(), confusion[rows].sum()
    return 100.0 * int(right) / (int(images) or 1)
