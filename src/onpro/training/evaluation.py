"""Evaluate a method: confusion matrix, accuracies, and what cues change about them."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from onpro.data.imageset import Split
from onpro.methods.registry import AnyMethod
from onpro.streams.cues import Cues

TEST_BATCH = 1000
"""Number of test images predicted at a time."""


class CueRates(NamedTuple):
    """Percentages of the test images of a task, in a stream with a shortcut.

    A wrong cue is that of another class of the same task. In other tasks the same cue belongs to
    other classes.
    """

    true_cue: float
    """Accuracy on images with the cue of their class."""
    wrong_cue: float
    """Accuracy on images with a wrong cue."""
    following: float
    """Images with a wrong cue that are taken for the class it belongs to in this task."""
    following_any: float
    """Images with a wrong cue that are taken for a class it belongs to, in whatever task."""
    control: float
    """As `following`, but of the same images without the cue."""
    control_any: float
    """As `following_any`, but of the same images without the cue."""


def confusion_matrix(method: AnyMethod, splits: Iterable[Split], classes: int) -> Tensor:
    """Return the counts (classes, classes) by true (row) and predicted class, on the CPU."""
    cells = torch.zeros(classes * classes, dtype=torch.int64, device=method.context.device)
    for part in _joined(part for split in splits for part in _parts(split)):
        cells += _cells(part, method.predict(part.images), classes)
    return cells.view(classes, classes).cpu()


def confusion_and_cue_rates(
    method: AnyMethod, tests: Iterable[tuple[Split, Tensor]], classes: int, cues: Cues
) -> tuple[Tensor, list[CueRates]]:
    """Return the confusion matrix without cues, and what cues change on each task.

    Each image is loaded once and predicted three times.

    Args:
        method: what to evaluate.
        tests: test images of each task, and the labels whose cues are the wrong ones.
        classes: number of classes.
        cues: paints them.
    """
    cells = torch.zeros(classes * classes, dtype=torch.int64, device=method.context.device)
    rates = []
    for split, others in tests:
        counts = torch.zeros(len(CueRates._fields), dtype=torch.int64, device=cells.device)
        parts = zip(_parts(split), others.split(TEST_BATCH), strict=True)
        for part, other in parts:
            plain = method.predict(part.images)
            true = method.predict(cues.paint(part.images, part.labels))
            wrong = method.predict(cues.paint(part.images, other))
            cells += _cells(part, plain, classes)
            hits = (
                true == part.labels,
                wrong == part.labels,
                wrong == other,
                cues.same(wrong, other),
                plain == other,
                cues.same(plain, other),
            )
            counts += torch.stack(hits).sum(dim=1)
        rates.append(CueRates(*(100.0 * count / len(split) for count in counts.tolist())))
    return cells.view(classes, classes).cpu(), rates


def _parts(split: Split) -> Iterator[Split]:
    """Yield the images and labels of a split in parts of `TEST_BATCH`."""
    everything = torch.arange(len(split), device=split.labels.device)
    return split.batches(everything.split(TEST_BATCH))


def _joined(parts: Iterable[Split]) -> Iterator[Split]:
    """Join consecutive parts of up to `TEST_BATCH` images: many small ones would take longer.

    Full parts are yielded at once and as they are, since large images take much memory.
    """
    waiting: list[Split] = []
    for part in parts:
        if waiting and sum(map(len, waiting)) + len(part) > TEST_BATCH:
            yield _concatenated(waiting)
            waiting = []
        if len(part) == TEST_BATCH:
            yield part
        else:
            waiting.append(part)
    if waiting:
        yield _concatenated(waiting)


def _concatenated(parts: Sequence[Split]) -> Split:
    images, labels = [part.images for part in parts], [part.labels for part in parts]
    return Split(torch.cat(images), torch.cat(labels))


def _cells(part: Split, predicted: Tensor, classes: int) -> Tensor:
    """Return the counts (classes²,) by true and predicted class."""
    return torch.bincount(part.labels * classes + predicted, minlength=classes * classes)


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
