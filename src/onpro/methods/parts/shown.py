"""Offsets of logits that make up for how often a step shows each class."""

import torch
from torch import Tensor

from onpro.memory import Memory, retrieval

NEVER_SHOWN = 1e-12
"""Count of a class that is neither stored nor in the batch."""


def log_expected_counts(memory: Memory, labels: Tensor, replayed: int, classes: int) -> Tensor:
    """Offsets (classes,) to add to logits, so that training does not favour classes shown often.

    The logarithm of the images of each class that a step shows on average: those of the batch, and
    of the replayed images the share that the class has of the memory. Without it, a network would
    predict the classes that it saw last too often.

    Args:
        memory: The memory that images are replayed from.
        labels: (n,) of the batch.
        replayed: Number of replayed images.
        classes: Number of classes.
    """
    stored = retrieval.class_counts(memory, classes)
    share = stored / stored.sum().clamp(min=1)
    counts = (replayed * share).index_add(0, labels, torch.ones_like(labels, dtype=share.dtype))
    return counts.clamp(min=NEVER_SHOWN).log()
