"""Settings that an earlier version saved."""

from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits

from onpro import OnlineClassifier
from onpro.methods import settings_for
from onpro.methods.former import ADDED, RETIRED, settings_of_today
from onpro.methods.registry import method, wrappers
from onpro.training.statefile import freeze, load_state, save_state

BASES = {"ccldc": "er-ccldc", "compressed": "er-compressed", "mkd": "er-mkd"}
"""A method with each of the wrappers that have changed."""


@pytest.mark.parametrize("name", sorted(ADDED))
def test_what_was_added_changes_nothing_of_older_settings(name: str) -> None:
    name_of_method = BASES.get(name, name)
    now = vars(settings_for(name_of_method, "cifar100"))
    before = {setting: value for setting, value in now.items() if setting not in ADDED[name]}
    assert settings_of_today(name_of_method, before) == now | ADDED[name]


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_what_was_retired_is_left_out_only_if_it_changed_nothing(name: str) -> None:
    name_of_method = BASES.get(name, name)
    now = vars(settings_for(name_of_method, "cifar10"))
    for setting, values in RETIRED[name].items():
        for value in values:
            assert settings_of_today(name_of_method, now | {setting: value}) == now
        other: Any = "another value"
        assert settings_of_today(name_of_method, now | {setting: other})[setting] == other


def test_a_setting_of_a_wrapper_is_not_taken_for_a_retired_one_of_its_method() -> None:
    assert settings_of_today("er-rot", {"rotations": 1})["rotations"] == 1


def test_changed_methods_exist() -> None:
    for name in (*ADDED, *RETIRED):
        assert name in wrappers() or method(name)


@pytest.mark.parametrize("name", ["erace", "relay"])
def test_a_classifier_with_settings_of_before_can_be_loaded(name: str, tmp_path: Path) -> None:
    """ER-ACE has a setting more than before, and Relay has fewer."""
    images, labels = load_digits(return_X_y=True)
    images = images[:40].reshape(-1, 8, 8) / 16
    learned = OnlineClassifier(name, memory=20, image_size=8).partial_fit(images, labels[:40])
    learned.save(tmp_path / "now")
    state = load_state(tmp_path / "now", kind="classifier")
    former = {setting: values[0] for setting, values in RETIRED.get(name, {}).items()}
    kept = {k: v for k, v in state["params"].items() if k not in ADDED.get(name, {})}
    assert kept | former != state["params"]
    save_state(tmp_path / "old", freeze(state | {"params": kept | former}, kind="classifier"))
    loaded = OnlineClassifier.load(tmp_path / "old")
    assert (loaded.predict_proba(images) == learned.predict_proba(images)).all()
