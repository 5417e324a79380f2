"""Settings for a data set, and named variations: the paper's ablations among them.

A run takes its method's defaults, then its data set's values, then those of the recipe asked for,
then what the user says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from onpro.errors import unknown
from onpro.methods import Settings, method

SMALL_IMAGES = {"encoder": "slim"}
"""For images of a few pixels, and for a CPU (ours)."""

MANY_CLASSES = {"feedback": 0.10, "mixup_probability": 0.2, "similarity_scale": 1.0}
"""OnPro on CIFAR-100 and TinyImageNet (paper and official code)."""

IMAGENET = MANY_CLASSES | {
    "encoder": "resnet18-imagenet",
    "rotations": 1,
    "replay_batch": 10,
}
"""OnPro on ImageNet: replay of 10 (paper), no rotation (our reading), the rest as on CIFAR-100."""

SHORT_STREAM = SMALL_IMAGES | {"projection": 64, "learning_rate": 5e-3}
"""OnPro on a stream of some hundred steps, on a CPU (ours)."""

DATA: dict[str, dict[str, dict[str, Any]]] = {
    "onpro": {
        "cifar10": {"feedback": 0.25, "mixup_probability": 0.6, "similarity_scale": 0.5},
        "cifar100": MANY_CLASSES,
        "tinyimagenet": MANY_CLASSES,
        "imagenet100": IMAGENET,
        "imagenet1k": IMAGENET,
        "digits": SHORT_STREAM,
        "folder": SMALL_IMAGES | {"projection": 64},
        "tiny": SHORT_STREAM | {"rotations": 4},
    },
}
"""For each method the values of a data set; a data set that is not named has none."""

EVERY_METHOD: dict[str, dict[str, Any]] = {
    "digits": SMALL_IMAGES,
    "folder": SMALL_IMAGES,
    "tiny": SMALL_IMAGES,
}
"""Values of a data set for methods that have none of their own."""


@dataclass(frozen=True)
class Recipe:
    """A named variation of a method."""

    about: str
    values: Mapping[str, Any]


def _feedback_ratio(ratio: float) -> Recipe:
    return Recipe(f"Table A5: share of feedback {ratio:g}", {"feedback": ratio})


RECIPES: dict[str, dict[str, Recipe]] = {
    "onpro": {
        "baseline": Recipe(
            "Table 3: neither prototypes nor mixup",
            {"new_prototypes": False, "seen_prototypes": False, "mixup": False},
        ),
        "without-ope": Recipe(
            "Table 3: no contrast between prototypes",
            {"new_prototypes": False, "seen_prototypes": False},
        ),
        "without-apf": Recipe("Table 3: no mixup, so no feedback", {"mixup": False}),
        "without-new": Recipe("Table 3: no new prototypes", {"new_prototypes": False}),
        "without-seen": Recipe("Table 3: no replay prototypes", {"seen_prototypes": False}),
        "seen-without-new": Recipe(
            "Table 3: replay prototypes of earlier tasks only", {"seen_without_new": True}
        ),
        "random-mixup": Recipe("Table 4: mixup without feedback", {"feedback": 0.0}),
        "ce-both": Recipe(
            "Table A3: one cross-entropy of new and replay", {"cross_entropy": "both"}
        ),
        "ce-separate": Recipe(
            "Table A3: a cross-entropy of new, another of replay", {"cross_entropy": "separate"}
        ),
        **{f"alpha-{r:g}": _feedback_ratio(r) for r in (0.0, 0.10, 0.25, 0.50, 0.75, 0.9)},
        "without-projector": Recipe("Table A6: no projection", {"projection": 0}),
        "without-rotation": Recipe("Figure A4: no rotated copies", {"rotations": 1}),
        "paper-text": Recipe(
            "the paper's text to the letter, where the official code differs",
            {
                "pair_kernel": "gaussian",
                "pair_rounding": "plain",
                "instance_loss": "supcon",
                "views": "augmented",
                "replay_per_class": 0,
                "betas": (0.9, 0.999),
            },
        ),
    },
}


def recipes(method_name: str) -> dict[str, Recipe]:
    """The named variations of a method."""
    return RECIPES.get(method_name, {})


def data_values(method_name: str, data: str) -> Mapping[str, Any]:
    """What a data set changes in a method's settings."""
    source = data.partition(":")[0]
    return DATA.get(method_name, {}).get(source) or EVERY_METHOD.get(source, {})


def settings_for(method_name: str, data: str, recipe: str | None = None) -> Settings:
    """A method's settings for a data set, varied by a recipe."""
    values = dict(data_values(method_name, data))
    if recipe is not None:
        known = recipes(method_name)
        if recipe not in known:
            raise unknown(f"recipe of {method_name}", recipe, known)
        values |= known[recipe].values
    return replace(method(method_name).settings_type(), **values)
