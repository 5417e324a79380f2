"""Settings of runs and classifiers that an earlier version saved, as this version has them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from onpro.methods.registry import method
from onpro.methods.settings import PRETRAINED

ADDED: dict[str, dict[str, Any]] = {
    "erace": {"unseen_compete": True},
    "gsa": {"head": "trained", "optimizer": "adam"},
    "ccldc": {"separate_chains": False},
    "mkd": {"taught_rotations": 1, "predict_from": "image"},
    "compressed": {"ratio": 0.0},
}
"""Settings that methods and wrappers did not always have, with the values that change nothing."""

RETIRED: dict[str, dict[str, tuple[Any, ...]]] = {
    "er": {"distillation": (0.0,), "rotations": (1,)},
    "aser": {"rotations": (1,)},
    "scr": {"rotations": (1,)},
    "dvc": {"rotations": (1,)},
    "ccldc": {"peers": (2,)},
    "relay": {
        "views": (1,),
        # With one view, these never mattered.
        "operations": (1, 3),
        "magnitude": (11, 15),
        "operations_per": ("batch", "image"),
        "contrast": ("together",),
        "handicap": (0.0,),
    },
}
"""Settings that methods and wrappers no longer have, with the values that changed nothing."""


def settings_of_today(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a method, and whatever else is among them, as this version has them.

    Settings added since are added, with the values that change nothing; of those that no longer
    exist, the ones that changed nothing are left out.
    """
    known = {field.name for field in fields(method(name).settings_type)}
    added, retired = dict(PRETRAINED), dict[str, tuple[Any, ...]]()
    for part in name.split("-"):  # the method, then its wrappers
        added |= ADDED.get(part, {})
        retired |= RETIRED.get(part, {})
    kept = {
        setting: value
        for setting, value in settings.items()
        if setting in known or value not in retired.get(setting, ())
    }
    return {setting: value for setting, value in added.items() if setting in known} | kept
