"""Scikit-learn's handwritten digits: real data that come with an installed package."""

import torch

from onpro.data.imageset import ImageSet, Split, measure


def digits() -> ImageSet:
    """All 1797 images of 8×8 pixels; the last fifth of each class is the test set.

    The split never changes, whatever the seed of a run, so that results compare. The 17 grey levels
    become 0…255, copied to three channels.
    """
    from sklearn.datasets import load_digits

    source = load_digits()
    grey = (torch.from_numpy(source.images) * (255 / 16)).round().to(torch.uint8)
    images = grey[:, None].repeat(1, 3, 1, 1)
    labels = torch.from_numpy(source.target).long()
    test = _last_fifth_of_each_class(labels)
    train = Split(images[~test], labels[~test])
    mean, std = measure(train.images)
    return ImageSet(
        name="digits",
        train=train,
        test=Split(images[test], labels[test]),
        classes=tuple(str(digit) for digit in range(10)),
        mean=mean,
        std=std,
    )


def _last_fifth_of_each_class(labels: torch.Tensor) -> torch.Tensor:
    """Labels (n,) to a mask (n,)."""
    chosen = torch.zeros_like(labels, dtype=torch.bool)
    for label in range(10):
        positions = (labels == label).nonzero()[:, 0]
        chosen[positions[-(len(positions) // 5) :]] = True
    return chosen
