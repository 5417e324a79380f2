"""The registry of data sources: their descriptions, and functions that load them."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown
from onpro.files import expand_home
from onpro.plugins import load_plugins

if TYPE_CHECKING:
    from onpro.data.imageset import ImageSet


@dataclass(frozen=True)
class Request:
    """What the user requests from a source."""

    argument: str | None
    """The text after the colon of the name: PATH in `folder:PATH`."""
    data_dir: Path | None
    """Folder for downloaded data; None for the default."""
    image_size: int | None
    """Side of the images in pixels; None for the images as they are. `load` resizes if the source
    does not; one whose images have `any_size` is told its default."""
    seed: int
    """Seed of a random split or of procedural images."""
    limit_per_class: int | None = None
    """Number of training and test images of each class; None for all. `load` drops the others if
    the source does not."""


Loader = Callable[[Request], "ImageSet"]

LARGEST_SIDE = 1024
"""Largest side of images in pixels."""


@dataclass(frozen=True)
class Source:
    """A data source: its description and its loader."""

    name: str
    description: str
    """A few words."""
    loader: Loader = field(repr=False)
    images: int | None = None
    """Number of training and test images, about; None if it depends on the data."""
    classes: int | None = None
    """Number of classes; None if it depends on the data."""
    tasks: int | None = None
    """Default number of tasks; None for two classes per task."""
    image_size: int | None = None
    """Default side of the images in pixels; None if it depends on the data."""
    any_size: bool = False
    """Whether images are decoded at any size requested, so that the default is only a choice."""
    download: bool = False
    """Whether it is downloaded on first use."""
    argument: str | None = None
    """Placeholder of the text after the colon of the name, such as PATH; None if there is none."""
    optional: bool = False
    """Whether the argument may be left out."""
    files: tuple[str, ...] = ()
    """Paths in the data folder; the data are there if any of these exists."""
    for_tests: bool = False
    """Whether it is meant for testing code, not for measuring methods."""
    seeded: bool = True
    """Whether the data depend on the seed, so that runs of different seeds cannot share them."""

    @property
    def usage(self) -> str:
        """The name as the user writes it.

        >>> find("folder:birds").usage
        'folder:PATH'
        """
        named = self.argument is None or self.optional
        return self.name if named else f"{self.name}:{self.argument}"

    def is_in(self, folder: Path) -> bool:
        """Return whether the data are in a data folder, or need none."""
        return not self.files or any((folder / path).exists() for path in self.files)

    def check(
        self, argument: str | None, image_size: int | None, limit_per_class: int | None
    ) -> None:
        """Raise UserError for what cannot be loaded, whatever the data."""
        if argument is None and self.argument is not None and not self.optional:
            raise UserError(f"the data set '{self.name}' is written as {self.usage}.")
        if image_size is not None and not 1 <= image_size <= LARGEST_SIDE:
            raise UserError(
                f"the image size must be between 1 and {LARGEST_SIDE} pixels, not {image_size}."
            )
        if limit_per_class is not None and limit_per_class < 1:
            raise UserError(f"the limit per class must be at least 1, not {limit_per_class}.")

    def tasks_for(self, classes: int) -> int:
        """Return the default number of tasks for data with `classes` classes.

        >>> find("cifar100").tasks_for(100), find("folder:birds").tasks_for(7)
        (10, 3)
        """
        return max(1, classes // 2) if self.tasks is None else self.tasks


_sources: dict[str, Source] = {}


def register(
    name: str,
    *,
    description: str,
    images: int | None = None,
    classes: int | None = None,
    tasks: int | None = None,
    image_size: int | None = None,
    any_size: bool = False,
    download: bool = False,
    argument: str | None = None,
    optional: bool = False,
    files: tuple[str, ...] = (),
    for_tests: bool = False,
    seeded: bool = True,
) -> Callable[[Loader], Loader]:
    """Register the decorated function, from a `Request` to an `ImageSet`, as a data source.

    The arguments are the fields of `Source`. The sources of a package that names the function's
    module in the entry-point group `onpro.datasets` are available like the built-in ones.
    """
    if ":" in name or not name:
        raise ValueError(f"the name of a data source must be non-empty without a colon: {name!r}")

    def add(loader: Loader) -> Loader:
        if name in _sources:
            raise ValueError(f"the data source {name!r} is already registered")
        _sources[name] = Source(
            name=name,
            description=description,
            loader=loader,
            images=images,
            classes=classes,
            tasks=tasks,
            image_size=image_size,
            any_size=any_size,
            download=download,
            argument=argument,
            optional=optional,
            files=files,
            for_tests=for_tests,
            seeded=seeded,
        )
        return loader

    return add


def sources() -> tuple[Source, ...]:
    """Return all sources, including third-party ones, sorted by name."""
    load_plugins("onpro.datasets")
    return tuple(_sources[name] for name in sorted(_sources))


def find(name: str) -> Source:
    """Return the source of a name, such as `folder` for `folder:PATH`."""
    key = name.partition(":")[0]
    if key not in _sources:
        load_plugins("onpro.datasets")
    source = _sources.get(key)
    if source is None and os.path.isdir(expand_home(name)):  # noqa: PTH112 # as below
        raise UserError(f"there is no data set '{name}'; for the folder write folder:{name}.")
    if source is None or (":" in name and source.argument is None):
        raise unknown("data set", name, (source.usage for source in sources()))
    return source


def located(name: str) -> str:
    """Return the name with its path made absolute, without following links.

    >>> located("digits"), located("folder:/home/me/../you/birds")
    ('digits', 'folder:/home/you/birds')
    """
    source, _, argument = name.partition(":")
    path, mark, query = argument.partition("?") if source == "hf" else (argument, "", "")
    full = os.path.abspath(expand_home(path))  # noqa: PTH100 # pathlib follows links, or raises
    if not path or not (source == "folder" or (source == "hf" and os.path.isdir(full))):  # noqa: PTH112
        return name
    return f"{source}:{full}{mark}{query}"


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    image_size: int | None = None,
    seed: int = 0,
    limit_per_class: int | None = None,
) -> "ImageSet":
    """Load a data set.

    Args:
        name: name of the source, followed by a colon and its argument if it takes one.
        data_dir: folder for downloaded data; default: `ONPRO_DATA`, else the user's cache folder.
        image_size: side of the square images in pixels; default: that of the source.
        seed: seed of a random split or of procedural images.
        limit_per_class: keep only the first so many training and test images of each class.
    """
    source = find(name)
    argument = name.partition(":")[2] or None
    source.check(argument, image_size, limit_per_class)
    size = image_size or (source.image_size if source.any_size else None)
    try:
        data = source.loader(Request(argument, data_dir, size, seed, limit_per_class))
    except (OSError, ValueError) as error:
        raise UserError(f"the data set '{name}' cannot be used: {error}.") from error
    if limit_per_class is not None:
        data = data.limit_per_class(limit_per_class)
    return data if image_size is None else data.resized(image_size)
