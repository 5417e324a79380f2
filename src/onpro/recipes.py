"""Values that recipes and data sets give to settings, shared by several methods.

A run takes its method's defaults, then the values of its data set, then those of the recipe asked
for, then the user's. Where a method is registered says which it has. Only plain values live here,
so that listing them needs no heavy import.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]
"""Settings by name."""


@dataclass(frozen=True)
class Recipe:
    """A named variation of a method."""

    about: str
    values: Values

    def varied(self, about: str | None = None, **values: Any) -> "Recipe":
        """The recipe with other values, and another description where one is given."""
        return Recipe(about or self.about, {**self.values, **values})


EVERY_METHOD: dict[str, Values] = {
    "digits": {"encoder": "slim"},
    "folder": {"encoder": "slim"},
    "tiny": {"encoder": "slim"},
    "imagenet100": {"encoder": "resnet18-imagenet"},
    "imagenet1k": {"encoder": "resnet18-imagenet"},
}
"""Values of a data set for every method: a small encoder for small images and for CPUs (ours)."""

SHORT_STREAMS = ("digits", "folder", "tiny")
"""Data sets whose streams have some hundred steps."""

FEW_PIXELS = ("digits", "tiny")
"""Data sets whose images a shift by 4 pixels would cut in half."""

MANY_CLASSES = ("cifar100", "tinyimagenet")


def on(data: Iterable[str] | Mapping[str, Values], **values: Any) -> dict[str, Values]:
    """The same values for several data sets, added to those they have in a mapping.

    >>> on(("a", "b"), rotations=1)
    {'a': {'rotations': 1}, 'b': {'rotations': 1}}
    >>> on({"a": {"replay_batch": 10}}, rotations=1)
    {'a': {'replay_batch': 10, 'rotations': 1}}
    """
    given = data if isinstance(data, Mapping) else {name: {} for name in data}
    return {name: {**given[name], **values} for name in given}


IMAGENET = on(("imagenet100", "imagenet1k"), replay_batch=10)
"""Replay of 10 on ImageNet (paper)."""

PAPER = Recipe("Tables 1 and 2: the defaults", {})

FRAMEWORK = Recipe(
    "the framework's defaults",
    {"encoder": "resnet18-nf20", "augmentation": "none", "replay_batch": 10},
)
"""Of the framework from which the paper took most baselines."""

TUNED = Recipe(
    "the best of a few settings, chosen on test images of CIFAR-10 with other seeds",
    {"optimizer": "adam", "learning_rate": 5e-4, "weight_decay": 1e-4},
)

GSA_PORT: Values = {
    "optimizer": "adamw",
    "learning_rate": 5e-4,
    "betas": (0.9, 0.999),
    "views": "mirrored",
}
"""GSA in the official code of CCL-DC."""

GSA_PORT_OF_MKD: Values = {
    "augmentation": "crop",
    "learning_rate": 5e-4,
    "weight_decay": 0.0,
    "betas": (0.9, 0.999),
    "views": "single",
}
"""GSA in the official code of MKD."""

CHAIN: dict[str, Values] = {
    "er": {
        "optimizer": "adamw",
        "learning_rate": 5e-4,
        "weight_decay": 1e-4,
        "augmentation": "scr",
        "chain_weight": 2.0,
    },
    "erace": {"augmentation": "crop", "chain_rivals": "batch", "separate_chains": True},
    "derpp": {
        "optimizer": "adamw",
        "learning_rate": 5e-4,
        "weight_decay": 1e-4,
        "augmentation": "crop",
        "logit_weight": 0.2,
        "label_weight": 1.0,
    },
    "gsa": GSA_PORT,
    "ocm": {
        "weight_decay": 0.0,
        "betas": (0.9, 0.999),
        "augmentation": "scr",
        "chain_ce_weight": 0.25,
        "chain_weight": 4.0,
    },
    "onpro": {"chain_ce_weight": 0.25},
}
"""Values of a chain of views for methods (its official code)."""

CHAIN_ON_SHORT_STREAMS: dict[tuple[str, str], Values] = {
    **{(name, data): {"learning_rate": 5e-3} for name in ("er", "derpp") for data in SHORT_STREAMS},
    **{("erace", data): {"augmentation": "ocm"} for data in FEW_PIXELS},
}
"""Learning rates on short streams, and no shifts of images of few pixels (ours)."""

CHAIN_DATA: dict[str, Values] = {
    "tinyimagenet": {"operations": 1, "magnitude": 11},
    "imagenet100": {"magnitude": 11},
    "imagenet1k": {"magnitude": 11},
}
"""Values of a chain of views on data sets (its official code)."""
