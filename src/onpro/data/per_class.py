"""Choose images class by class, before they are decoded."""

from collections import Counter
from collections.abc import Sequence

import torch

TEST_SHARE = 0.2
"""Share of the images of each class that becomes the test set."""


def random_test_images(counts: Sequence[int], seed: int) -> list[set[int]]:
    """Draw a fifth of the images of each class, at least one.

    Args:
        counts: number of images of each class.
        seed: seed of the draw.

    Returns:
        The positions of the test images within each class.
    """
    generator = torch.Generator().manual_seed(seed)
    return [
        set(
            torch.randperm(count, generator=generator)[: max(1, round(TEST_SHARE * count))].tolist()
        )
        for count in counts
    ]


def first_per_class(labels: Sequence[int], limit: int) -> list[int]:
    """Return the positions of the first so many images of each class.

    >>> first_per_class([7, 7, 5, 7, 5], 2)
    [0, 1, 2, 4]
    """
    seen: Counter[int] = Counter()
    chosen = []
    for position, label in enumerate(labels):
        seen[label] += 1
        if seen[label] <= limit:
            chosen.append(position)
    return chosen
