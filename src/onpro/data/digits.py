"""Scikit-learn's handwritten digits, which need no download."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split, measure


def load_digits() -> ImageSet:
    """Load the 1797 images of 8×8 pixels; the last fifth of each class is the test set.

    The split is the same for every seed, so that results are comparable. The 17 grey levels are
    scaled to 0…255 and copied to three channels.
    """
    levels, labels = _read()
    grey = (levels * (255 / 16)).round().to(torch.uint8)
    images = grey[:, None].repeat(1, 3, 1, 1)
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


def _read() -> tuple[Tensor, Tensor]:
    """Return grey levels (n, 8, 8) and labels (n,).

    They are read from the file of scikit-learn, because importing it takes longer than learning
    from them.
    """
    package = find_spec("sklearn")
    for folder in (package and package.submodule_search_locations) or ():
        file = Path(folder, "datasets", "data", "digits.csv.gz")
        if file.is_file():
            rows = torch.from_numpy(np.loadtxt(file, delimiter=","))
            return rows[:, :-1].view(-1, 8, 8), rows[:, -1].long()
    from sklearn import datasets

    source = datasets.load_digits()
    return torch.from_numpy(source.images), torch.from_numpy(source.target).long()


def _last_fifth_of_each_class(labels: Tensor) -> Tensor:
    """Return a mask (n,) of the last fifth of the images of each class."""
    chosen = torch.zeros_like(labels, dtype=torch.bool)
    for label in range(10):
        positions = (labels == label).nonzero()[:, 0]
        chosen[positions[-(len(positions) // 5) :]] = True
    return chosen
