"""Data sets of Hugging Face, from the hub or from a folder."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch

from onpro.data.decode import Encoded
from onpro.data.imageset import ImageSet, Split, measured
from onpro.data.lazy import split_of
from onpro.data.per_class import first_per_class, random_test_images
from onpro.data.registry import Request
from onpro.errors import UserError, unknown
from onpro.files import expand_home

KEYS = ("config", "image", "label", "test", "train")
"""What can be given after the question mark."""

TEST_SPLITS = ("test", "validation", "valid", "val")
"""Names of splits that are the test set if none is named; the first that is there counts."""

SAMPLED = 64
"""Rows whose bytes identify a data set, beside its labels."""


def load_huggingface(request: Request) -> ImageSet:
    """Load a data set of the Hugging Face hub, or one that was saved in a folder.

    Rows are decoded like image files. Without a test split, a random fifth of each class is the
    test set.

    The argument is `NAME` on the hub or `PATH` of a folder, optionally followed by `?KEY=VALUE&…`
    with the keys `config`, `image` and `label` (columns), `train` and `test` (splits).
    """
    size, limit = request.image_size, request.limit_per_class
    assert request.argument  # as `load` requires
    assert size  # as registered
    name, _, query = request.argument.partition("?")
    given = dict(parse_qsl(query))
    for key in given:
        if key not in KEYS:
            raise unknown("setting of hf", key, KEYS)
    splits = _open(name, given.get("config"))
    train_name = _named_split(splits, given.get("train"), ("train",), name)
    test_name = given.get("test") or next((s for s in TEST_SPLITS if s in splits), None)
    train = splits[train_name]
    image = _image_column(train, given.get("image"), name)
    label = _label_column(train, given.get("label"), name)
    classes, train_labels = _labels(train, label, f"{train_name} of {name}")
    if test_name is None:
        train_rows, test_rows = _random_split(train_labels, len(classes), request.seed)
        test, test_name, test_labels = train, train_name, train_labels
    else:
        test = splits[_named_split(splits, test_name, (), name)]
        _, test_labels = _labels(test, label, f"{test_name} of {name}", classes)
        train_rows, test_rows = list(range(len(train))), list(range(len(test)))

    def split(table: Any, part: str, labels: list[int], rows: list[int], what: str) -> Split:
        if limit is not None:
            rows = [rows[k] for k in first_per_class([labels[row] for row in rows], limit)]
        images = Rows(table, image, rows, size, f"the split {part} of {name}")
        chosen = torch.tensor([labels[row] for row in rows], dtype=torch.int64)
        return split_of(images, chosen, what=f"{what} images of {name}")

    decoded = split(train, train_name, train_labels, train_rows, "training")
    mean, std = measured(decoded)
    return ImageSet(
        name=f"hf-{Path(name).name}",
        train=decoded,
        test=split(test, test_name, test_labels, test_rows, "test"),
        classes=classes,
        mean=mean,
        std=std,
    )


def _open(name: str, config: str | None) -> Mapping[str, Any]:
    """Return the splits of a data set by name."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            "Hugging Face datasets is not installed: pip install 'onpro[hf]'."
        ) from None
    path = expand_home(name)
    try:
        if any((path / file).is_file() for file in ("dataset_dict.json", "state.json")):
            loaded = datasets.load_from_disk(str(path))
        else:
            loaded = datasets.load_dataset(str(path) if path.is_dir() else name, config)
    except (OSError, ValueError) as error:
        said = " ".join(str(error).split()).rstrip(".")
        remedy = "check the name and the network" if not path.is_dir() else "check the folder"
        raise UserError(f"the data set {name} cannot be loaded ({said}): {remedy}.") from error
    splits: Mapping[str, Any] = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    return splits


def _named_split(
    splits: Mapping[str, Any], named: str | None, usual: Sequence[str], name: str
) -> str:
    found = named or next((split for split in usual if split in splits), None)
    if found is None or found not in splits:
        raise UserError(
            f"{name} has no split {found or ' or '.join(usual)}; name one of"
            f" {', '.join(splits)}: hf:{name}?train=SPLIT&test=SPLIT."
        )
    return found


def _image_column(table: Any, named: str | None, name: str) -> str:
    from datasets import Image

    found = [column for column, kind in table.features.items() if isinstance(kind, Image)]
    return _column("image", named, found, found, name)


def _label_column(table: Any, named: str | None, name: str) -> str:
    from datasets import ClassLabel, Value

    features = table.features
    found = [column for column, kind in features.items() if isinstance(kind, ClassLabel)]
    plain = [column for column, kind in features.items() if isinstance(kind, Value)]
    return _column("label", named, found or [c for c in plain if c == "label"], found + plain, name)


def _column(
    what: str, named: str | None, found: Sequence[str], possible: Sequence[str], name: str
) -> str:
    if named is not None and named not in possible:
        raise unknown(f"column of {what}s", named, possible)
    if named is None and len(found) != 1:
        listed = ", ".join(found or possible) or "none"
        problem = f"several {what} columns" if found else f"no clear {what} column"
        raise UserError(f"{name} has {problem} ({listed}); name one: hf:{name}?{what}=COLUMN.")
    return named or found[0]


def _labels(
    table: Any, column: str, where: str, classes: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...], list[int]]:
    """Return the class names, and the class index of each row.

    Args:
        table: a split.
        column: column of the labels.
        where: name of the split in error messages.
        classes: class names of the training split, for a test split.
    """
    from datasets import ClassLabel

    values: list[Any] = list(table[column])
    feature = table.features[column]
    if isinstance(feature, ClassLabel):
        names = tuple(feature.names)
        if not all(isinstance(value, int) and 0 <= value < len(names) for value in values):
            raise UserError(f"rows of the split {where} have no label.")
        if classes in (None, names):
            return names, values
        values = [names[value] for value in values]  # splits may number their classes differently
    if any(value is None for value in values):
        raise UserError(f"rows of the split {where} have no label.")
    names = tuple(map(str, sorted(set(values)))) if classes is None else classes
    index = {name: k for k, name in enumerate(names)}
    missing = sorted({str(value) for value in values} - index.keys())
    if missing:
        raise UserError(f"the label {missing[0]} of the split {where} is not in the training data.")
    return names, [index[str(value)] for value in values]


def _random_split(labels: list[int], classes: int, seed: int) -> tuple[list[int], list[int]]:
    """Return the rows to train and to test with."""
    by_class: list[list[int]] = [[] for _ in range(classes)]
    for row, label in enumerate(labels):
        by_class[label].append(row)
    drawn = random_test_images([len(rows) for rows in by_class], seed)
    test = {rows[k] for rows, chosen in zip(by_class, drawn, strict=True) for k in chosen if rows}
    return [row for row in range(len(labels)) if row not in test], sorted(test)


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a split with encoded images, as `Images`."""

    table: Any
    column: str
    rows: list[int]
    size: int
    """Side of the decoded images in pixels."""
    where: str
    """Name of the split in error messages."""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def digest(self) -> str:
        """Digest of the features, the rows and the bytes of some images."""
        digest = hashlib.sha256(f"{self.size} px, {self.table.features}, {self.rows}".encode())
        for row in self.rows[:: -(-len(self) // SAMPLED)]:
            encoded = self._encoded[row][self.column] or {}
            digest.update(encoded.get("bytes") or b"")
        return digest.hexdigest()

    def encoded(self, index: int) -> Encoded:
        """Return an image."""
        row = self.rows[index]
        found = self._encoded[row][self.column] or {}
        source = found.get("bytes") or found.get("path") or b""
        return Encoded(source, f"{row} of {self.where}")

    def check(self) -> None:
        """Do nothing: the formats that hold rows have checks of their own."""

    @cached_property
    def _encoded(self) -> Any:
        from datasets import Image

        only = self.table.select_columns([self.column])
        return only.cast_column(self.column, Image(decode=False))
