"""The data sources by name: what each one is, and how to load it.

Only descriptions live here, so that listing them needs no heavy import; the module that does a
source's work is imported when the source is loaded.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown

if TYPE_CHECKING:
    from onpro.data.imageset import ImageSet

ENTRY_POINTS = "onpro.datasets"
"""Entry-point group of a third party's sources: each names a module that calls `register`."""

WITHOUT_SOURCE = ("imagenet100", "imagenet1k")
"""Data sets of the paper that have settings and results, but that nobody can load here."""


@dataclass(frozen=True)
class Request:
    """What the user asked a source for."""

    argument: str | None
    """What follows the colon of the name: PATH in `folder:PATH`."""
    data_dir: Path | None
    """Where downloaded data lies, if the user said so."""
    image_size: int | None
    """Side of the images in pixels, if the user said so; `load` resizes where a source does not."""
    seed: int
    """For what a source draws: a split, or procedural images."""


Loader = Callable[[Request], "ImageSet"]


@dataclass(frozen=True)
class Source:
    """A data source: what the lists show of it, and how it is loaded."""

    name: str
    description: str
    """One line."""
    loader: Loader = field(repr=False)
    classes: int | None = None
    """Number of classes; None where only the data tell."""
    tasks: int | None = None
    """Number of tasks a benchmark splits the classes into; None: two classes a task."""
    image_size: int | None = None
    """Side of the images in pixels where nobody asks for another; None where only the data tell."""
    download: bool = False
    """Whether it comes from the network the first time."""
    argument: str | None = None
    """What has to follow the name after a colon, such as PATH; None where nothing may."""
    for_tests: bool = False
    """Whether it exists to test code and not to measure methods."""
    seeded: bool = True
    """Whether the data may depend on the seed, so that runs of several seeds cannot share them."""

    @property
    def usage(self) -> str:
        """How the user writes it.

        >>> find("folder:birds").usage
        'folder:PATH'
        """
        return self.name if self.argument is None else f"{self.name}:{self.argument}"

    def tasks_for(self, classes: int) -> int:
        """Default number of tasks for data with so many classes: its own, else two classes a task.

        >>> find("cifar100").tasks_for(100), find("folder:birds").tasks_for(7)
        (10, 3)
        """
        return max(1, classes // 2) if self.tasks is None else self.tasks


_sources: dict[str, Source] = {}


def register(
    name: str,
    *,
    description: str,
    classes: int | None = None,
    tasks: int | None = None,
    image_size: int | None = None,
    download: bool = False,
    argument: str | None = None,
    for_tests: bool = False,
    seeded: bool = True,
) -> Callable[[Loader], Loader]:
    """Decorate a function from a `Request` to an `ImageSet` to make it a source of that name.

    The other arguments are the fields of `Source`. A package that names the function's module in
    the entry-point group `onpro.datasets` has its source listed and loaded like the built-in ones.
    """
    if ":" in name or not name:
        raise ValueError(f"the name of a data source is not empty and has no colon: {name!r}")

    def add(loader: Loader) -> Loader:
        if name in _sources:
            raise ValueError(f"there is a data source {name!r} already")
        _sources[name] = Source(
            name=name,
            description=description,
            loader=loader,
            classes=classes,
            tasks=tasks,
            image_size=image_size,
            download=download,
            argument=argument,
            for_tests=for_tests,
            seeded=seeded,
        )
        return loader

    return add


def sources() -> tuple[Source, ...]:
    """All sources, sorted by name, a third party's among them."""
    _register_third_parties()
    return tuple(_sources[name] for name in sorted(_sources))


def find(name: str) -> Source:
    """The source a user's name means; `folder:PATH` means `folder`."""
    key = name.partition(":")[0]
    if key not in _sources:
        _register_third_parties()
    source = _sources.get(key)
    if source is None and name in WITHOUT_SOURCE:
        raise UserError(
            f"onpro cannot load the paper's data set '{name}' yet; images of your own in folders"
            " are written as folder:PATH."
        )
    if source is None or (":" in name and source.argument is None):
        raise unknown("data set", name, (source.usage for source in sources()))
    return source


def located(name: str) -> str:
    """The name, with a path in it that means the same from every folder.

    >>> located("digits"), located("folder:/home/me/../you/birds")
    ('digits', 'folder:/home/you/birds')
    """
    source, _, path = name.partition(":")
    if source != "folder" or not path:
        return name
    return f"{source}:{os.path.abspath(os.path.expanduser(path))}"  # noqa: PTH100, PTH111 # without following links, without raising


LARGEST_SIDE = 1024
"""Of images for the network: larger ones would only take memory."""


def load(
    name: str,
    *,
    data_dir: Path | None = None,
    image_size: int | None = None,
    seed: int = 0,
) -> "ImageSet":
    """Load a source's images.

    Args:
        name: name of the source, with its argument after a colon where it takes one.
        data_dir: where downloaded data lie; default: `ONPRO_DATA`, else the user's cache folder.
        image_size: side of the square images in pixels; default: the source's own.
        seed: for what the source draws: the split of a folder, procedural images.
    """
    source = find(name)
    argument = name.partition(":")[2] or None
    if argument is None and source.argument is not None:
        raise UserError(f"the data set '{source.name}' is written as {source.usage}.")
    if image_size is not None and not 1 <= image_size <= LARGEST_SIDE:
        raise UserError(
            f"the image size must lie between 1 and {LARGEST_SIDE} pixels, not {image_size}."
        )
    try:
        data = source.loader(Request(argument, data_dir, image_size, seed))
    except (OSError, ValueError) as error:
        raise UserError(f"the data set '{name}' cannot be used: {error}.") from error
    return data if image_size is None else data.resized(image_size)


@cache
def _register_third_parties() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:  # a broken package must not take the other sources with it
            warnings.warn(f"data sources of {entry.value} left out: {error!r}", stacklevel=2)


@register(
    "digits",
    description="scikit-learn's handwritten digits, 1797 real images, nothing to download",
    classes=10,
    tasks=5,
    image_size=8,
    seeded=False,
)
def _digits(request: Request) -> "ImageSet":
    from onpro.data.digits import digits

    return digits()


@register(
    "cifar10",
    description="CIFAR-10, 60000 photographs of animals and vehicles",
    classes=10,
    tasks=5,
    image_size=32,
    download=True,
    seeded=False,
)
def _cifar10(request: Request) -> "ImageSet":
    from onpro.data.cifar import cifar10

    return cifar10(request.data_dir)


@register(
    "cifar100",
    description="CIFAR-100, 60000 photographs of a hundred kinds of things",
    classes=100,
    tasks=10,
    image_size=32,
    download=True,
    seeded=False,
)
def _cifar100(request: Request) -> "ImageSet":
    from onpro.data.cifar import cifar100

    return cifar100(request.data_dir)


@register(
    "tinyimagenet",
    description="Tiny ImageNet, 110000 photographs of two hundred kinds of things",
    classes=200,
    tasks=100,
    image_size=64,
    download=True,
    seeded=False,
)
def _tinyimagenet(request: Request) -> "ImageSet":
    from onpro.data.tinyimagenet import tinyimagenet

    return tinyimagenet(request.data_dir)


@register(
    "folder",
    description="your own images, one subfolder a class, with or without train and test above",
    image_size=32,
    argument="PATH",
)
def _folder(request: Request) -> "ImageSet":
    from onpro.data.folder import folder

    assert request.argument is not None  # `load` has seen to it
    size = 32 if request.image_size is None else request.image_size
    return folder(Path(request.argument), image_size=size, seed=request.seed)


@register(
    "tiny",
    description="coloured stripes made on the spot, to test code and not methods",
    classes=6,
    tasks=3,
    image_size=12,
    for_tests=True,
)
def _tiny(request: Request) -> "ImageSet":
    from onpro.data.tiny import tiny

    size = 12 if request.image_size is None else request.image_size
    return tiny(image_size=size, seed=request.seed)
