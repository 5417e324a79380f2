"""`onpro predict RUN IMAGES…`: classify image files with the model of a run."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.cli.signals import importing
from onpro.errors import UserError
from onpro.text import visible, written

if TYPE_CHECKING:
    from onpro.image_classifier import ImageClassifier


@dataclass(frozen=True)
class Command:
    """Which model, and which images."""

    run: tyro.conf.Positional[Path]
    """Folder of a finished run."""

    images: tyro.conf.Positional[tuple[Path, ...]]
    """Image files, or folders of them."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to compute; auto is a GPU if there is one."""

    json: bool = False
    """Print a JSON list of objects with file, class and probability."""


AT_ONCE = 256
"""Images decoded and classified at a time."""


def main(arguments: Sequence[str]) -> int:
    """Classify the images; the exit status is 1 if some of them cannot be read."""
    about = (
        "Classify image files with the model that a finished run has kept. Images are cropped to a "
        "square and resized as those of a folder are in training."
    )
    options = parse(Command, arguments, command="onpro predict", about=about)
    problems: list[str] = []
    files: list[Path] = []
    for path in options.images:
        try:
            files += _files(path)
        except UserError as error:
            problems.append(str(error))
    if not files and problems:
        raise UserError(problems[0])
    if not files:
        raise UserError("name at least one image file, or a folder that has some.")
    with importing():
        from onpro.runs import read_config

    read_config(options.run)
    classifier = _load(options.run, options.device)
    found: list[dict[str, Any]] = []
    for start in range(0, len(files), AT_ONCE):
        found += _classify(classifier, files[start : start + AT_ONCE], problems)
    if not found:
        raise UserError(problems[0])
    for problem in problems:
        print(f"onpro: {visible(problem)}", file=sys.stderr)
    if options.json:
        print(json.dumps(found))
    else:
        rows = [[f["file"], f["class"], written(f["probability"], ".3f")] for f in found]
        print_table(["file", "class", "probability"], rows)
    return 1 if problems else 0


def _files(path: Path) -> Iterator[Path]:
    """Yield a file, or the images in a folder and its subfolders without hidden ones."""
    from onpro.data.image_files import SUFFIXES

    if not path.exists():
        raise UserError(f"there is no image {path}.")
    if not path.is_dir():
        if not path.is_file():  # opening a FIFO would wait
            raise UserError(f"{path} is neither a file nor a folder.")
        yield path
        return
    files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES]
    seen = [f for f in files if not any(p.startswith(".") for p in f.relative_to(path).parts)]
    found = [file for file in seen if file.is_file()]
    if not found:
        if (path / "config.json").is_file():
            raise UserError(f"{path} is a run: name one run, then images.")
        raise UserError(f"the folder {path} has no image file.")
    yield from found


def _load(run: Path, device: str) -> "ImageClassifier":
    from onpro.fitted import MODEL_FILE
    from onpro.image_classifier import ImageClassifier

    if not (run / "result.json").exists():
        raise UserError(f"{run} is not finished: resume it with onpro resume, then predict.")
    if not (run / MODEL_FILE).exists():
        raise UserError(
            f"{run} has kept no model: train it again with onpro run and the options "
            "--keep-model end --fresh."
        )
    try:
        # The precision is that of training; predictions of an fp32 learner are the most exact.
        classifier = ImageClassifier.from_run(run, device=device, precision="fp32")
    except (OSError, ValueError) as error:
        raise UserError(f"{str(error).rstrip('.')}.") from error
    if classifier.image_size is None:
        raise UserError(
            f"{run} has learned from images that are not square, which files are cropped to: use "
            "OnlineClassifier.from_run in Python."
        )
    return classifier


def _classify(
    classifier: "ImageClassifier", files: Sequence[Path], problems: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the class of each image and its probability; add unreadable ones to the problems."""
    import torch

    from onpro.data.decode import decode_file

    images = {}
    for file in files:
        try:
            images[file] = decode_file(file, classifier.image_size or 0)
        except UserError as error:
            problems.append(str(error))
    if not images:
        return
    probabilities = classifier.predict_proba(torch.stack(list(images.values())))
    classes = classifier.classes_
    for file, row in zip(images, probabilities, strict=True):
        best = int(row.argmax())
        yield {"file": str(file), "class": str(classes[best]), "probability": float(row[best])}
