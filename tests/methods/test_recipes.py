"""Settings for a data set, and named variations."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from onpro.data import sources
from onpro.errors import UserError
from onpro.methods import data_values, methods, recipes, settings_for
from onpro.runs import RunConfig, prepare

DATA = [*(source.usage for source in sources()), "imagenet100", "imagenet1k"]

ONPRO: dict[str, Any] = {
    "encoder": "resnet18",
    "augmentation": "ocm",
    "learning_rate": 5e-4,
    "weight_decay": 1e-4,
    "betas": (0.9, 0.99),
    "replay_batch": 64,
    "replay_per_class": 7,
    "prototype_temperature": 0.5,
    "instance_temperature": 0.07,
    "random_mixup_highest": 0.6,
    "feedback_mixup_beta": 0.4,
    "similarity_scale_first": 1.0,
    "rotations": 16,
    "projection": 128,
    "mixup": True,
    "new_prototypes": True,
    "seen_prototypes": True,
    "seen_without_new": False,
    "cross_entropy": "replay",
}
"""OnPro's values on every data set of the paper."""

ONPRO_ON: dict[str, dict[str, Any]] = {
    "cifar10": {"feedback": 0.25, "mixup_probability": 0.6, "similarity_scale": 0.5},
    "cifar100": {"feedback": 0.10, "mixup_probability": 0.2, "similarity_scale": 1.0},
    "tinyimagenet": {"feedback": 0.10, "mixup_probability": 0.2, "similarity_scale": 1.0},
}
"""OnPro's values that depend on the data set."""

ABLATIONS: dict[str, dict[str, Any]] = {
    "baseline": {"new_prototypes": False, "seen_prototypes": False, "mixup": False},
    "without-ope": {"new_prototypes": False, "seen_prototypes": False},
    "without-apf": {"mixup": False},
    "without-new": {"new_prototypes": False},
    "without-seen": {"seen_prototypes": False},
    "seen-without-new": {"seen_without_new": True},
    "random-mixup": {"feedback": 0.0},
    "ce-both": {"cross_entropy": "both"},
    "ce-separate": {"cross_entropy": "separate"},
    "alpha-0": {"feedback": 0.0},
    "alpha-0.1": {"feedback": 0.10},
    "alpha-0.25": {"feedback": 0.25},
    "alpha-0.5": {"feedback": 0.50},
    "alpha-0.75": {"feedback": 0.75},
    "alpha-0.9": {"feedback": 0.9},
    "without-projector": {"projection": 0},
    "without-rotation": {"rotations": 1},
    "paper-text": {
        "pair_kernel": "gaussian",
        "pair_rounding": "plain",
        "instance_loss": "supcon",
        "views": "augmented",
        "replay_per_class": 0,
        "betas": (0.9, 0.999),
    },
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", sorted(methods()))
def test_every_method_has_settings_for_every_data_set(name: str, data: str) -> None:
    settings = settings_for(name, data)
    settings.check()
    assert isinstance(settings, methods()[name].settings_type)
    assert data_values(name, data).items() <= asdict(settings).items()


@pytest.mark.parametrize("data", ONPRO_ON)
def test_onpro_has_the_values_of_the_paper_and_its_code(data: str) -> None:
    settings = asdict(settings_for("onpro", data))
    expected = ONPRO | ONPRO_ON[data]
    assert {name: settings[name] for name in expected} == expected


def test_a_path_does_not_change_the_values_of_a_folder() -> None:
    assert settings_for("onpro", "folder:/some/birds") == settings_for("onpro", "folder:PATH")


@pytest.mark.parametrize("name", ["cope", "ocm", "onpro"])
def test_a_folder_is_learned_as_fast_as_digits(name: str) -> None:
    """Both are short streams: the learning rates of long ones leave later classes unlearned."""
    assert settings_for(name, "folder:birds") == settings_for(name, "digits")


@pytest.mark.parametrize("recipe", ABLATIONS)
@pytest.mark.parametrize("data", ["cifar10", "cifar100"])
def test_an_ablation_changes_what_it_names_and_nothing_else(recipe: str, data: str) -> None:
    plain, varied = asdict(settings_for("onpro", data)), settings_for("onpro", data, recipe)
    varied.check()
    assert asdict(varied) == plain | ABLATIONS[recipe]


@pytest.mark.parametrize("name", sorted(methods()))
def test_every_recipe_of_every_method_says_what_it_is_and_changes_only_that(name: str) -> None:
    plain = asdict(settings_for(name, "cifar10"))
    for recipe, variation in recipes(name).items():
        varied = settings_for(name, "cifar10", recipe)
        varied.check()
        assert variation.about
        assert asdict(varied) == plain | dict(variation.values)


@pytest.mark.parametrize("recipe", ABLATIONS)
def test_every_ablation_can_be_trained(recipe: str) -> None:
    config = RunConfig(
        method="onpro",
        settings=settings_for("onpro", "tiny", recipe),
        data="tiny",
        limit_per_class=6,
        device="cpu",
    )
    trainer = prepare(config)
    trainer.run()
    assert len(trainer.accuracy) == 3


def test_an_unknown_recipe_is_told_the_nearest_one() -> None:
    with pytest.raises(UserError, match="did you mean 'without-ope'"):
        settings_for("onpro", "digits", "witout-ope")


def test_values_of_the_data_set_reach_the_method(tmp_path: Path) -> None:
    settings = settings_for("onpro", "digits")
    config = RunConfig(method="onpro", settings=settings, limit_per_class=2, device="cpu")
    assert prepare(config).method.settings == settings
    assert getattr(settings, "encoder", None) == "slim"
