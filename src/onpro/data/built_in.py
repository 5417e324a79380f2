"""The data sources of onpro itself.

The module of a source is imported when it is loaded, so that listing sources imports nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from onpro.data.registry import Request, register
from onpro.data.torchvision_sets import SETS, TorchvisionSet, load_torchvision

if TYPE_CHECKING:
    from onpro.data.imageset import ImageSet


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

        return load_imagenet(classes, request)


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
        return load_torchvision(entry, request)


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

    assert request.argument  # as `load` requires
    assert request.image_size  # as registered
    return load_folder(
        Path(request.argument),
        image_size=request.image_size,
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

    return load_huggingface(request)


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
