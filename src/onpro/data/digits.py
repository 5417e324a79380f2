"""Scikit-learn's handwritten digits, which need no download."""

import torch

from onpro.data.imageset import ImageSet, Split, measure


def load_digits() -> ImageSet:
    """Load the 1797 images of 8×8 pixels; the last fifth of each class is the test set.

    The split is the same for every seed, so that results are comparable. The 17 grey levels are
    scaled to 0…255 and copied to three channels.
    """
    from sklearn import datasets

    source = datasets.load_digits()
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
    """Return a mask (n,) of the last fifth of the images of each class."""
    chosen = torch.zeros_like(labels, dtype=torch.bool)
    for label in range(10):
        positions = (labels == label).nonzero()[:, 0]
        chosen[positions[-(len(positions) // 5) :]] = True
    return chosen
