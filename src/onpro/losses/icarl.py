"""iCaRL's loss: binary cross-entropy with the outputs of the previous network as targets."""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits


def binary_targets(
    labels: Tensor,
    rows: int,
    classes: int,
    previous: Tensor | None = None,
    known: Tensor | None = None,
) -> Tensor:
    """What each unit shall say of each image.

    Old classes shall look as the previous network saw them, on every row; of the new classes, a
    new image has its own, a replayed one none. A new image of an old class, which occurs where
    nobody separates tasks, keeps its label too.

    Args:
        labels: (n,) labels of the new images, which are the first rows.
        rows: number of images, new and replayed.
        classes: number of units.
        previous: (rows, k) logits of the previous network, k ≤ classes; None in the first task.
        known: (k,) which of its units stand for old classes.

    Returns:
        (rows, classes), each between 0 and 1.
    """
    dtype = torch.float32 if previous is None else previous.dtype
    targets = torch.zeros(rows, classes, dtype=dtype, device=labels.device)
    if previous is not None and known is not None:
        targets[:, : len(known)] = previous.sigmoid() * known
    targets[: len(labels)].scatter_(1, labels[:, None], 1.0)
    return targets


def summed_binary_cross_entropy(
    logits: Tensor, targets: Tensor, *, units: Tensor, rows: Tensor
) -> Tensor:
    """Binary cross-entropy, summed over the units in use, mean over the rows that count.

    Args:
        logits: (n, classes).
        targets: (n, classes).
        units: (classes,) bool, those in use.
        rows: (n,) bool, those that count.
    """
    each = binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    counted = rows[:, None] & units
    return each.masked_fill(~counted, 0.0).sum() / rows.sum()
