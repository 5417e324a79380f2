"""A made-up ImageNet in the layouts of the real one, for tests and measurements.

`python -m tests.data.made_up_imagenet FOLDER` writes an ImageNet-100 with the numbers of images
and the sizes of files of the real one; the files are links to a pool of different images.
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image
from scipy.io import savemat

Layout = Literal["sorted", "devkit", "kaggle"]

SHAPES = ((500, 375), (500, 333), (375, 500), (500, 500), (640, 480), (400, 300))
"""Widths and heights that are common in ImageNet."""


def photograph(seed: int, shape: tuple[int, int]) -> Image.Image:
    """Random structures of several sizes, which compress about as well as a photograph."""
    random = np.random.default_rng(seed)
    width, height = shape
    mixed = np.zeros((height, width, 3), np.float32)
    for grain, weight in ((1, 0.25), (4, 0.2), (16, 0.25), (64, 0.3)):
        small = random.integers(0, 256, (height // grain + 2, width // grain + 2, 3), np.uint8)
        large = Image.fromarray(small).resize(shape, Image.Resampling.BICUBIC)
        mixed += weight * np.asarray(large)
    return Image.fromarray(mixed.astype(np.uint8))


def write_pool(folder: Path, count: int, shapes: Sequence[tuple[int, int]] = SHAPES) -> list[Path]:
    """Write JPEG files, among them a grey, a CMYK and a rotated one."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(k: int) -> Path:
        path = folder / f"{k}.JPEG"
        image = photograph(k, shapes[k % len(shapes)])
        exif = Image.Exif()
        if k == 3:
            exif[0x0112] = 6
        image.convert({1: "L", 2: "CMYK"}.get(k, "RGB")).save(path, quality=90, exif=exif)
        return path

    with ThreadPoolExecutor() as threads:
        return list(threads.map(write, range(count)))


def write_imagenet(
    root: Path,
    *,
    classes: int = 100,
    train: int = 3,
    test: int = 1,
    layout: Layout = "sorted",
    pool: int = 12,
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> Path:
    """Write `train` and `val` below `root`, with so many images of each class; return their folder.

    Args:
        root: the folder for `--data-dir`.
        classes: number of classes.
        train: training images of each class.
        test: test images of each class.
        layout: validation images sorted into folders, flat with the devkit, or as Kaggle has them.
        pool: number of different images.
        shapes: their widths and heights.
    """
    files = write_pool(root / "pool", pool, shapes)
    folder = root / "ILSVRC" / "Data" / "CLS-LOC" if layout == "kaggle" else root
    wnids = [f"n{1_003 * (k + 1):08}" for k in range(classes)]
    for c, wnid in enumerate(wnids):
        (folder / "train" / wnid).mkdir(parents=True)
        for k in range(train):
            os.link(files[(c + k) % pool], folder / "train" / wnid / f"{wnid}_{k}.JPEG")
    shuffled = [wnids[k] for k in np.random.default_rng(0).permutation(classes * test) % classes]
    for number, wnid in enumerate(shuffled, 1):
        sub = folder / "val" / (wnid if layout == "sorted" else "")
        sub.mkdir(parents=True, exist_ok=True)
        os.link(files[number % pool], sub / f"ILSVRC2012_val_{number:08}.JPEG")
    if layout == "devkit":
        _write_devkit(root / "ILSVRC2012_devkit_t12" / "data", wnids, shuffled)
    elif layout == "kaggle":
        lines = [f"ILSVRC2012_val_{k:08},{w} 1 2 3 4 \n" for k, w in enumerate(shuffled, 1)]
        text = "ImageId,PredictionString\n" + "".join(reversed(lines))
        (root / "LOC_val_solution.csv").write_text(text)
    return folder


def _write_devkit(folder: Path, wnids: Sequence[str], truth: Sequence[str]) -> None:
    """Write the ground truth and `meta.mat`, whose ids are not in the order of the names."""
    folder.mkdir(parents=True)
    ids = {wnid: k for k, wnid in enumerate(reversed(wnids), 1)}
    dtype = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    leaves = [(k, wnid, f"thing {k}", 0) for wnid, k in ids.items()]
    inner = [(len(ids) + 1, "n99999999", "all things", len(ids))]
    savemat(folder / "meta.mat", {"synsets": np.array([*leaves, *inner], dtype)})
    text = "".join(f"{ids[wnid]}\n" for wnid in truth)
    (folder / "ILSVRC2012_validation_ground_truth.txt").write_text(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--train", type=int, default=1300, help="training images of each class")
    parser.add_argument("--test", type=int, default=50, help="test images of each class")
    parser.add_argument("--pool", type=int, default=500, help="number of different images")
    given = parser.parse_args()
    write_imagenet(
        given.folder,
        classes=given.classes,
        train=given.train,
        test=given.test,
        pool=given.pool,
    )
