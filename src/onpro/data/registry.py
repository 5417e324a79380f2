"""The registry of data sources.

It holds descriptions only, so that listing them imports nothing heavy; the module of a source is
imported when the source is loaded.
"""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from onpro.data.torchvision_sets import SETS, TorchvisionSet, load_torchvision
from onpro.errors import UserError, unknown

if TYPE_CHECKING:
    from onpro.data.imageset import ImageSet

ENTRY_POINTS = "onpro.datasets"
"""Entry-point group of third-party sources: each names a module that calls `register`."""


@dataclass(frozen=True)
class Request:
    """What the user requests from a source."""

    argument: str | None
    """The text after the colon of the name: PATH in `folder:PATH`."""
    data_dir: Path | None
    """Folder for downloaded data; None for the default."""
    image_size: int | None
    """Side of the images in pixels; None for the default. `load` resizes if the source does not."""
    seed: int
    """Seed of a random split or of procedural images."""
    limit_per_class: int | None = None
    """Number of training and test images of each class; None for all. `load` drops the others if
    the source does not."""


Loader = Callable[[Request], "ImageSet"]


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
    """Paths in the data folder; if there is one of them, so are the data."""
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
    _register_third_parties()
    return tuple(_sources[name] for name in sorted(_sources))


def find(name: str) -> Source:
    """Return the source of a name, such as `folder` for `folder:PATH`."""
    key = name.partition(":")[0]
    if key not in _sources:
        _register_third_parties()
    source = _sources.get(key)
    if source is None and os.path.isdir(os.path.expanduser(name)):  # noqa: PTH111, PTH112 # as below
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
    full = os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111 # pathlib follows links, or raises
    if not path or not (source == "folder" or (source == "hf" and os.path.isdir(full))):  # noqa: PTH112
        return name
    return f"{source}:{full}{mark}{query}"


LARGEST_SIDE = 1024
"""Largest side of images in pixels."""


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
    if argument is None and source.argument is not None and not source.optional:
        raise UserError(f"the data set '{source.name}' is written as {source.usage}.")
    if image_size is not None and not 1 <= image_size <= LARGEST_SIDE:
        raise UserError(
            f"the image size must be between 1 and {LARGEST_SIDE} pixels, not {image_size}."
        )
    if limit_per_class is not None and limit_per_class < 1:
        raise UserError(f"the limit per class must be at least 1, not {limit_per_class}.")
    try:
        data = source.loader(Request(argument, data_dir, image_size, seed, limit_per_class))
    except (OSError, ValueError) as error:
        raise UserError(f"the data set '{name}' cannot be used: {error}.") from error
    if limit_per_class is not None:
        data = data.limit_per_class(limit_per_class)
    return data if image_size is None else data.resized(image_size)


@cache
def _register_third_parties() -> None:
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except Exception as error:  # a broken package must not break the other sources
            warnings.warn(f"the data sources of {entry.value} fail: {error!r}", stacklevel=2)


@register(
    "digits",
    description="scikit-learn's digits",
    images=1797,
    classes=10,
    tasks=5,
    image_size=8,
    seeded=False,
)
def _digits(request: Request) -> "ImageSet":
    from onpro.data.digits import load_digits

    return load_digits()


@register(
    "cifar10",
    description="CIFAR-10, photographs",
    images=60000,
    classes=10,
    tasks=5,
    image_size=32,
    download=True,
    files=("cifar-10-batches-py",),
    seeded=False,
)
def _cifar10(request: Request) -> "ImageSet":
    from onpro.data.cifar import load_cifar10

    return load_cifar10(request.data_dir)


@register(
    "cifar100",
    description="CIFAR-100, photographs",
    images=60000,
    classes=100,
    tasks=10,
    image_size=32,
    download=True,
    files=("cifar-100-python",),
    seeded=False,
)
def _cifar100(request: Request) -> "ImageSet":
    from onpro.data.cifar import load_cifar100

    return load_cifar100(request.data_dir)


@register(
    "tinyimagenet",
    description="Tiny ImageNet",
    images=110000,
    classes=200,
    tasks=100,
    image_size=64,
    download=True,
    files=("tiny-imagenet-200",),
    seeded=False,
)
def _tinyimagenet(request: Request) -> "ImageSet":
    from onpro.data.tinyimagenet import load_tinyimagenet

    return load_tinyimagenet(request.data_dir, request.limit_per_class)


IMAGENET_PLACES = (".", "imagenet", "ILSVRC2012", "ILSVRC/Data/CLS-LOC")
"""Where `train` and `val` are looked for in the data folder; the last is Kaggle's layout."""


def _register_imagenet(name: str, description: str, images: int, classes: int) -> None:
    @register(
        name,
        description=description,
        images=images,
        classes=classes,
        tasks=50,
        image_size=224,
        any_size=True,
        argument="ORDER",
        optional=True,
        files=tuple(f"{place}/train/" for place in IMAGENET_PLACES),
        seeded=False,
    )
    def imagenet(request: Request) -> "ImageSet":
        from onpro.data.imagenet import load_imagenet

        return load_imagenet(
            classes,
            order=request.argument,
            data_dir=request.data_dir,
            image_size=224 if request.image_size is None else request.image_size,
            limit_per_class=request.limit_per_class,
        )


_register_imagenet("imagenet100", "100 classes of ImageNet", 133000, 100)
_register_imagenet("imagenet1k", "ImageNet (ILSVRC 2012)", 1331167, 1000)


def _register_torchvision(entry: TorchvisionSet) -> None:
    @register(
        entry.name,
        description=entry.description,
        images=entry.images,
        classes=entry.classes,
        tasks=entry.tasks,
        image_size=entry.image_size,
        any_size=not entry.arrays,
        download=True,
        files=(entry.folder,),
        seeded=False,
    )
    def from_torchvision(request: Request) -> "ImageSet":
        return load_torchvision(
            entry,
            data_dir=request.data_dir,
            image_size=request.image_size,
            limit_per_class=request.limit_per_class,
        )


for _entry in SETS:
    _register_torchvision(_entry)


@register(
    "folder",
    description="your images, by class",
    image_size=32,
    any_size=True,
    argument="PATH",
)
def _folder(request: Request) -> "ImageSet":
    from onpro.data.folder import load_folder

    assert request.argument is not None  # checked by `load`
    size = 32 if request.image_size is None else request.image_size
    return load_folder(
        Path(request.argument),
        image_size=size,
        seed=request.seed,
        limit_per_class=request.limit_per_class,
    )


@register(
    "hf",
    description="Hugging Face, hub or disk",
    image_size=32,
    any_size=True,
    argument="NAME",
)
def _huggingface(request: Request) -> "ImageSet":
    from onpro.data.huggingface import load_huggingface

    assert request.argument is not None  # checked by `load`
    return load_huggingface(
        request.argument,
        image_size=32 if request.image_size is None else request.image_size,
        seed=request.seed,
        limit_per_class=request.limit_per_class,
    )


@register(
    "tiny",
    description="stripes, for testing code",
    images=480,
    classes=6,
    tasks=3,
    image_size=12,
    for_tests=True,
)
def _tiny(request: Request) -> "ImageSet":
    from onpro.data.tiny import tiny

    size = 12 if request.image_size is None else request.image_size
    return tiny(image_size=size, seed=request.seed)
