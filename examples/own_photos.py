"""Learn from a folder of photographs, test on some of them, and draw what was learned.

    python examples/own_photos.py birds            # birds/robin/1.jpg, birds/wren/2.jpg, …
    python examples/own_photos.py --demo birds     # make such a folder of drawings first

A fifth of each class is set aside. The classes arrive one after another, each image once; with few
photographs, batches of one image give the most steps. The classifier is saved as birds.onpro, and
birds.png shows a test image of each class, the answer, and what speaks for it (GradCAM++).
"""
# ruff: noqa: T201 # an example may print

import argparse
import random
import sys
from pathlib import Path

import torch
from matplotlib.figure import Figure
from PIL import Image, ImageDraw

from onpro import OnlineClassifier
from onpro.data.folder import load_folder
from onpro.data.imageset import ImageSet, Split
from onpro.errors import UserError
from onpro.figures.gradcam import gradcam
from onpro.streams import ClassIncremental


def main(
    folder: Path,
    method: str = "erace",
    memory: int = 100,
    image_size: int = 32,
    batch_size: int = 1,
    seed: int = 0,
) -> float:
    """Learn, test, save and draw; return the share of test images that are recognised."""
    photos = load_folder(folder, image_size=image_size, seed=seed)
    classes = len(photos.classes)
    print(f"{classes} classes, {len(photos.train)} images to learn, {len(photos.test)} to test")
    classifier = OnlineClassifier(method, memory=memory, seed=seed, batch_size=batch_size)
    for batch in ClassIncremental(photos, classes, batch_size=batch_size, seed=seed):
        names = [photos.classes[k] for k in batch.labels.tolist()]
        classifier.partial_fit(batch.images, names)
    right = test(classifier, photos)
    classifier.save(folder.with_name(f"{folder.name}.onpro"))
    draw(classifier, photos, folder.with_name(f"{folder.name}.png"))
    print(f"{right:.0%} right in the end; {folder.name}.onpro and {folder.name}.png beside it")
    return right


def test(classifier: OnlineClassifier, photos: ImageSet) -> float:
    """Print how many test images of each class are recognised, and return the share of all."""
    total = 0
    for k, name in enumerate(photos.classes):
        images = of_class(photos.test, k)
        right = int((classifier.predict(images) == name).sum())
        total += right
        print(f"{name:>16}: {right} of {len(images)} right")
    return total / len(photos.test)


def of_class(split: Split, label: int) -> torch.Tensor:
    """Return the images of a class."""
    return split.select((split.labels == label).nonzero().flatten()).images


def draw(classifier: OnlineClassifier, photos: ImageSet, path: Path) -> None:
    """Draw a test image of each class, the answer, and which parts of it speak for that."""
    shown = min(len(photos.classes), 8)
    figure = Figure(figsize=(1.3 * shown, 3.2), layout="constrained")
    panels = figure.subplots(2, shown, squeeze=False)
    for k in range(shown):
        image = of_class(photos.test, k)[0]
        answer = str(classifier.predict(image[None])[0])
        heat, _ = gradcam(classifier.method_, image, fine=True)
        for axes in panels[:, k]:
            axes.imshow(image.permute(1, 2, 0).numpy())
            axes.set(xticks=[], yticks=[])
        panels[1, k].imshow(heat.numpy(), cmap="viridis", alpha=0.5, interpolation="bilinear")
        panels[0, k].set_title(photos.classes[k], size=9)
        panels[1, k].set_xlabel(answer, size=9)
    panels[1, 0].set_ylabel("answer below", size=9)
    figure.savefig(path, dpi=150)


def make_demo(folder: Path, images: int = 100, seed: int = 0) -> None:
    """Fill a folder with drawings of four kinds of fruit, on grounds of any colour."""
    draws = random.Random(seed)
    fruit = {
        "lemon": ((240, 220, 50), 1.5),
        "lime": ((120, 190, 50), 1.0),
        "plum": ((90, 40, 120), 1.2),
        "tomato": ((220, 50, 40), 0.9),
    }
    for name, (colour, width) in fruit.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for k in range(images):
            image = Image.new("RGB", (96, 72), tuple(draws.randrange(256) for _ in range(3)))
            x, y, r = draws.uniform(36, 60), draws.uniform(30, 42), draws.uniform(16, 24)
            skin = tuple(max(0, min(255, c + draws.randrange(-40, 41))) for c in colour)
            ImageDraw.Draw(image).ellipse((x - width * r, y - r, x + width * r, y + r), fill=skin)
            image.save(folder / name / f"{k}.jpg")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder with a subfolder for each class")
    parser.add_argument("--demo", action="store_true", help="fill the folder with drawings first")
    parser.add_argument("--method", default="erace", help="a name that `onpro methods` lists")
    parser.add_argument("--memory", type=int, default=100, help="how many images may be kept")
    parser.add_argument("--image-size", type=int, default=32, help="side in pixels")
    parser.add_argument("--batch-size", type=int, default=1, help="images learned together")
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    if given.pop("demo"):
        make_demo(given["folder"])
    torch.set_num_threads(1)  # as the command does: equal results on any number of cores
    try:
        main(**given)
    except (UserError, ValueError) as error:
        sys.exit(f"own_photos: {error}")
