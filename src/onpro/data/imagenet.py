"""ImageNet-1k (ILSVRC 2012) and ImageNet-100, from a folder of the user.

The validation images are the test set, because the labels of the test images are not published.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onpro.data.built_in import IMAGENET_PLACES
from onpro.data.download import data_folder
from onpro.data.image_files import ImageFile, list_classes, list_images, split_by_class
from onpro.data.imageset import ImageSet, Split, Triple
from onpro.data.registry import Request
from onpro.errors import UserError, unknown

MEAN: Triple = (0.485, 0.456, 0.406)
"""The usual constants of ImageNet; the paper names none."""
STD: Triple = (0.229, 0.224, 0.225)
"""The usual constants of ImageNet; the paper names none."""

CLASSES = 1000
SEED = 1993
"""Seed of the subset of 100 classes (paper), and of the order `shuffled`."""

ORDERS = ("natural", "shuffled")

GROUND_TRUTH = "ILSVRC2012_devkit*/data/ILSVRC2012_validation_ground_truth.txt"
SOLUTION = "LOC_val_solution.csv"


def load_imagenet(classes: int, request: Request) -> ImageSet:
    """Load ImageNet, or a subset of its classes; images are decoded when needed.

    The subset is the first `classes` of the WordNet ids, sorted and permuted with NumPy's legacy
    generator of seed 1993, which is also what its `choice` draws. A folder that has no other
    classes than a subset is taken as it is. The order "natural" sorts the classes by WordNet id,
    "shuffled" keeps the permutation.

    Args:
        classes: number of classes.
        request: its argument is the order, "natural" (default) or "shuffled"; its data folder
            contains `train` and `val`, or a folder with them.
    """
    order, size, limit = request.argument or "natural", request.image_size, request.limit_per_class
    assert size  # as registered
    if order not in ORDERS:
        raise unknown("class order of ImageNet", order, ORDERS)
    base = data_folder(request.data_dir)
    root = _root(base)
    wnids = _chosen(_wnids(root / "train"), classes, order, root / "train")
    train = list_classes(root, [f"train/{wnid}" for wnid in wnids])
    _require_images(train, [root / "train" / wnid for wnid in wnids])
    name = f"imagenet{classes}" if classes < CLASSES else "imagenet1k"
    return ImageSet(
        name=name,
        train=split_by_class(
            root, [images[:limit] for images in train], size, what=f"training images of {name}"
        ),
        test=_test(root, base, wnids, size, limit, what=f"test images of {name}"),
        classes=tuple(wnids),
        mean=MEAN,
        std=STD,
    )


def _root(base: Path) -> Path:
    for place in IMAGENET_PLACES:
        if all((base / place / part).is_dir() for part in ("train", "val")):
            return base / place
    raise UserError(
        f"ImageNet is not in {base}: give the folder that contains its folders train and val with"
        " --data-dir DIR or ONPRO_DATA."
    )


def _wnids(folder: Path) -> list[str]:
    """Return the sorted WordNet ids of the class folders."""
    return sorted(
        entry.name
        for entry in folder.iterdir()
        if re.fullmatch(r"n\d{8}", entry.name) and entry.is_dir()
    )


def _chosen(wnids: list[str], count: int, order: str, folder: Path) -> list[str]:
    """Return the classes in order."""
    if len(wnids) not in (count, CLASSES):
        expected = str(CLASSES) if count == CLASSES else f"{CLASSES} or {count}"
        raise UserError(f"{folder} has {len(wnids)} class folders, not {expected}.")
    permuted = np.random.RandomState(SEED).permutation(len(wnids))[:count].tolist()
    return [wnids[k] for k in (sorted(permuted) if order == "natural" else permuted)]


def _test(
    root: Path, base: Path, wnids: Sequence[str], size: int, limit: int | None, *, what: str
) -> Split:
    if (root / "val" / wnids[0]).is_dir():
        files = list_classes(root, [f"val/{wnid}" for wnid in wnids])
    else:
        truth = _ground_truth(root, base)
        by_class: dict[str, list[ImageFile]] = {wnid: [] for wnid in wnids}
        for image in list_images(root, "val"):
            wnid = truth.get(Path(image.name).stem)
            if wnid is None:
                raise UserError(f"the ground truth has no class for the image {root / image.name}.")
            if wnid in by_class:
                by_class[wnid].append(image)
        files = list(by_class.values())
    _require_images(files, [root / "val" / wnid for wnid in wnids])
    return split_by_class(root, [images[:limit] for images in files], size, what=what)


def _require_images(files: Sequence[Sequence[ImageFile]], folders: Sequence[Path]) -> None:
    for images, folder in zip(files, folders, strict=True):
        if not images:
            raise UserError(f"the class {folder.name} of ImageNet has no image in {folder.parent}.")


def _ground_truth(root: Path, base: Path) -> dict[str, str]:
    """Return the WordNet id of each validation image, from the devkit or Kaggle's table."""
    for folder in dict.fromkeys((root, base, *root.parents)):
        for path in sorted(folder.glob(GROUND_TRUTH)):
            return _from_devkit(path)
        if (folder / SOLUTION).is_file():
            return _from_solution(folder / SOLUTION)
    raise UserError(
        f"the validation images in {root / 'val'} have no labels: sort them into class folders, or"
        f" put the folder ILSVRC2012_devkit_t12 or the file {SOLUTION} beside {root / 'val'}."
    )


def _from_devkit(path: Path) -> dict[str, str]:
    from scipy.io import loadmat

    try:
        synsets: Any = loadmat(path.with_name("meta.mat"), squeeze_me=True)["synsets"]
        leaves = synsets[synsets["num_children"] == 0]
        wnids = {int(leaf["ILSVRC2012_ID"]): str(leaf["WNID"]) for leaf in leaves}
        numbers = map(int, path.read_text().split())
        return {f"ILSVRC2012_val_{k:08}": wnids[number] for k, number in enumerate(numbers, 1)}
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"the devkit of ImageNet in {path.parent} is damaged: {error}.") from error


def _from_solution(path: Path) -> dict[str, str]:
    with path.open(newline="") as file:
        rows = csv.reader(file)
        return {row[0]: row[1].split()[0] for row in rows if row[1:] and row[1].startswith("n")}
