"""Settings for a data set, and named variations: the paper's ablations among them.

A run takes its method's defaults, then its data set's values, then those of the recipe asked for,
then what the user says. Only values live here, so that listing them needs no heavy import.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

IMAGENET_REPLAY = {"encoder": "resnet18-imagenet", "replay_batch": 10}
"""Baselines with replay on ImageNet: replay of 10 (paper)."""

ON_IMAGENET = {"imagenet100": IMAGENET_REPLAY, "imagenet1k": IMAGENET_REPLAY}

FEW_PIXELS = SMALL_IMAGES | {"augmentation": "ocm", "learning_rate": 0.1}
"""DER++ where a shift by 4 pixels would be half an image, on a short stream (ours)."""

SHORT_STREAM = SMALL_IMAGES | {"projection": 64, "learning_rate": 5e-3}
"""OnPro on a stream of some hundred steps, on a CPU (ours)."""

COMMON_AUGMENTATION = {"augmentation": "ocm"}
"""Of methods with one of their own, on ImageNet (paper)."""

DVC_ON_IMAGENET = IMAGENET_REPLAY | COMMON_AUGMENTATION | {"agreement_weight": 4.0}
"""DVC on ImageNet: as on CIFAR-100 where the paper says nothing (ours)."""

COPE_ON_SHORT_STREAM = {
    "learning_rate": 0.05,
    "temperature": 0.1,
    "prototype_momentum": 0.9,
    "embedding": 64,
}
"""CoPE on a stream of some hundred steps: prototypes that move sooner (ours)."""

SHORT_STREAMS = ("digits", "folder", "tiny")

DATA: dict[str, dict[str, dict[str, Any]]] = {
    "onpro": {
        "cifar10": {"feedback": 0.25, "mixup_probability": 0.6, "similarity_scale": 0.5},
        "cifar100": MANY_CLASSES,
        "tinyimagenet": MANY_CLASSES,
        "imagenet100": IMAGENET,
        "imagenet1k": IMAGENET,
        "digits": SHORT_STREAM,
        "folder": SHORT_STREAM,
        "tiny": SHORT_STREAM | {"rotations": 4},
    },
    "er": ON_IMAGENET,
    "agem": ON_IMAGENET,
    "mir": ON_IMAGENET,
    "gss": ON_IMAGENET,
    "gdumb": {"tiny": SMALL_IMAGES | {"epochs": 20}},
    "derpp": ON_IMAGENET | {"digits": FEW_PIXELS, "tiny": FEW_PIXELS},
    "icarl": ON_IMAGENET,
    "aser": ON_IMAGENET,
    "scr": dict.fromkeys(("imagenet100", "imagenet1k"), IMAGENET_REPLAY | COMMON_AUGMENTATION),
    "cope": ON_IMAGENET | dict.fromkeys(SHORT_STREAMS, SMALL_IMAGES | COPE_ON_SHORT_STREAM),
    "dvc": {
        "cifar10": {"agreement_weight": 2.0},
        "cifar100": {"agreement_weight": 4.0},
        "tinyimagenet": {"agreement_weight": 4.0},
        "imagenet100": DVC_ON_IMAGENET,
        "imagenet1k": DVC_ON_IMAGENET,
    },
    "ocm": {
        "cifar10": {"similarity_scale": 0.5},
        "cifar100": {"similarity_scale": 1.0},
        "tinyimagenet": {"similarity_scale": 1.0},
        "imagenet100": IMAGENET_REPLAY | {"similarity_scale": 1.0, "rotations": 1},
        "imagenet1k": IMAGENET_REPLAY | {"similarity_scale": 1.0, "rotations": 1},
        "digits": SHORT_STREAM,
        "folder": SHORT_STREAM,
        "tiny": SHORT_STREAM | {"rotations": 4},
    },
}
"""For each method the values of a data set; a data set that is not named has none."""

EVERY_METHOD: dict[str, dict[str, Any]] = {
    "digits": SMALL_IMAGES,
    "folder": SMALL_IMAGES,
    "tiny": SMALL_IMAGES,
    "imagenet100": {"encoder": "resnet18-imagenet"},
    "imagenet1k": {"encoder": "resnet18-imagenet"},
}
"""Values of a data set for methods that have none of their own."""


@dataclass(frozen=True)
class Recipe:
    """A named variation of a method."""

    about: str
    values: Mapping[str, Any]


def _feedback_ratio(ratio: float) -> Recipe:
    return Recipe(f"Table A5: share of feedback {ratio:g}", {"feedback": ratio})


PAPER = Recipe("Tables 1 and 2: the defaults", {})

ROTATION = Recipe("Table A4: 16 rotations, each a class", {"rotations": 16})

FRAMEWORK = {"encoder": "resnet18-nf20", "augmentation": "none", "replay_batch": 10}
"""Defaults of the framework the paper took most baselines from."""

TUNED = Recipe(
    "the best of a few sound settings, found by a search (results/tuned)",
    {"optimizer": "adam", "learning_rate": 5e-4, "weight_decay": 1e-4},
)

SCR_ORIGINAL = FRAMEWORK | {"augmentation": "scr", "replay_batch": 100}


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
    "er": {
        "paper": PAPER,
        "tuned": TUNED,
        "original": Recipe("the framework's defaults", FRAMEWORK),
        "distillation": Recipe("Table A1: features distilled", {"distillation": 10.0}),
        "rotation": ROTATION,
    },
    "agem": {
        "paper": PAPER,
        "original": Recipe(
            "its own code's numbers, with our memory and one head",
            FRAMEWORK | {"learning_rate": 0.03, "replay_batch": 256},
        ),
    },
    "mir": {
        "paper": PAPER,
        "tuned": TUNED,
        "original": Recipe(
            "its own code's numbers; candidates still include the current task",
            FRAMEWORK | {"candidates": 50},
        ),
    },
    "gss": {
        "paper": PAPER,
        "tuned": TUNED,
        "original": Recipe(
            "the framework's defaults",
            FRAMEWORK | {"gradient_batches": 10, "gradient_batch": 10},
        ),
    },
    "gdumb": {
        "paper": PAPER,
        "tuned": TUNED,
        "original": Recipe(
            "its own code's schedule and augmentation, without its CutMix",
            {
                "augmentation": "crop",
                "epochs": 256,
                "train_batch": 16,
                "learning_rate": 0.05,
                "schedule": "cosine",
                "momentum": 0.9,
                "weight_decay": 1e-6,
            },
        ),
    },
    "derpp": {
        "paper": PAPER,
        "original": Recipe(
            "its own code's numbers, in one pass", {"augmentation": "crop", "replay_batch": 32}
        ),
    },
    "icarl": {
        "paper": PAPER,
        "original": Recipe("the online framework's defaults", FRAMEWORK),
    },
    "aser": {
        "paper": PAPER,
        "tuned": TUNED,
        "original": Recipe("the framework's defaults", FRAMEWORK),
        "original-cifar10": Recipe(
            "the framework's runs on CIFAR-10: nine samples of each class",
            FRAMEWORK | {"samples_per_class": 9.0},
        ),
        "original-cifar100": Recipe(
            "the framework's runs on CIFAR-100: two samples of each class",
            FRAMEWORK | {"samples_per_class": 2.0},
        ),
        "rotation": ROTATION,
    },
    "scr": {
        "paper": PAPER,
        "original": Recipe("its own code's numbers, with a linear projection", SCR_ORIGINAL),
        "original-review": Recipe(
            "its own code's runs: the memory reviewed when a task ends",
            SCR_ORIGINAL | {"temperature": 0.1, "review": True},
        ),
        "rotation": ROTATION,
    },
    "cope": {
        "paper": PAPER,
        "original": Recipe(
            "its own code's run on CIFAR-10",
            FRAMEWORK | {"learning_rate": 0.005, "temperature": 0.1, "embedding": 256},
        ),
    },
    "dvc": {
        "paper": PAPER,
        "original": Recipe("its own code's numbers", FRAMEWORK | {"augmentation": "dvc"}),
        "selective": Recipe(
            "twice as many candidates as are replayed, so that there is a choice",
            {"candidates": 128},
        ),
        "rotation": ROTATION,
    },
    "ocm": {
        "paper": PAPER,
        "without-rotation": Recipe("no rotated copies", {"rotations": 1}),
    },
    "pass": {
        "paper": PAPER,
        "original": Recipe(
            "its own code's augmentation, without its jitter, in one pass",
            {"augmentation": "crop"},
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
