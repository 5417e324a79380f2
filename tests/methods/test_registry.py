"""Methods by name, those of other packages among them."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest

from onpro import plugins, validation
from onpro.cli.run import GROUPS
from onpro.errors import UserError
from onpro.image_classifier import OWN
from onpro.methods import data_values, method, methods, recipes, register, registry, settings_for
from onpro.methods.er import ER, ERSettings
from onpro.plugins import load_plugins
from onpro.recipes import Recipe
from onpro.runs import RunConfig

ABOUT: dict[str, Any] = {
    "title": "Mine",
    "paper": "None yet",
    "year": 2024,
    "memory": "images",
    "inference": "linear head",
    "images_per_step": "74",
}


class Mine(ER):
    """A method of somebody else."""


class EntryPoint:
    """What an installed package announces; loading it registers a method, or fails."""

    value = "their.package"

    def __init__(self, name: str = "theirs", error: Exception | None = None) -> None:
        self.name = name
        self.error = error

    def load(self) -> None:
        if self.error:
            raise self.error
        register(self.name, ERSettings, **ABOUT)(Mine)


@pytest.fixture(autouse=True)
def _known_methods_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    methods()
    monkeypatch.setattr(registry, "_METHODS", dict(registry._METHODS))
    yield
    load_plugins.cache_clear()


def announce(monkeypatch: pytest.MonkeyPatch, *entries: EntryPoint) -> None:
    groups = {"onpro.methods": entries}
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: groups.get(group, ()))
    load_plugins.cache_clear()


def test_the_methods_of_the_package_are_known_by_name() -> None:
    assert {"er", "onpro"} <= set(methods())
    assert list(methods()) == sorted(methods())
    assert method("er") is ER
    assert all(cls.about.name == name for name, cls in methods().items())


def test_a_registered_method_is_known_with_its_settings() -> None:
    assert register("mine", ERSettings, **ABOUT)(Mine) is Mine
    assert method("mine") is Mine
    assert Mine.settings_type is ERSettings
    assert (Mine.about.name, Mine.about.title, Mine.about.year) == ("mine", "Mine", 2024)
    assert ER.about.name == "er", "the parent's description stays its own"


CALM = Recipe("slower", {"learning_rate": 0.01})


def test_a_method_brings_recipes_and_values_for_data_sets() -> None:
    register(
        "mine", ERSettings, **ABOUT, data={"digits": {"replay_batch": 7}}, recipes={"calm": CALM}
    )(Mine)
    settings: Any = settings_for("mine", "digits", "calm")
    assert (settings.replay_batch, settings.learning_rate) == (7, 0.01)
    assert settings.encoder == "slim", "a partial entry keeps the other values of the data set"
    assert data_values("mine", "folder:somewhere") == {"encoder": "slim"}
    assert recipes("mine") == {"calm": CALM}
    with pytest.raises(UserError, match="recipe of mine"):
        settings_for("mine", "digits", "tuned")


@pytest.mark.parametrize("given", ["data", "recipes"])
def test_a_value_for_no_setting_is_refused(given: str) -> None:
    values = {"learning_rat": 0.1}
    brought: dict[str, Any] = {given: {"x": values if given == "data" else Recipe("", values)}}
    with pytest.raises(ValueError, match="ERSettings has no setting 'learning_rat' to set"):
        register("mine", ERSettings, **ABOUT, **brought)


def test_registering_the_same_class_again_is_fine() -> None:
    register("mine", ERSettings, **ABOUT)(Mine)
    register("mine", ERSettings, **ABOUT)(Mine)
    assert method("mine") is Mine


@pytest.mark.parametrize("name", ["", "my method", "mine/2", "--mine", "."])
def test_a_name_that_is_no_word_of_a_command_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="the name of a method is made of letters"):
        register(name, ERSettings, **ABOUT)


@dataclass(frozen=True)
class Taken(ERSettings):
    memory: int = 5


class Bare(ERSettings):
    strength: float = 1.0


@dataclass(frozen=True)
class Foreign:
    encoder: str = "slim"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (Taken, "Taken cannot have a setting 'memory', which every run has: rename it"),
        (Bare, r"Bare must be a dataclass: put @dataclass\(frozen=True\) directly above it"),
        (Foreign, "Foreign must be derived from Settings"),
    ],
)
def test_settings_that_could_not_be_options_are_refused(
    settings: type[Any], complaint: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=complaint):
        register("mine", settings, **ABOUT)


def test_the_options_of_every_run_are_reserved() -> None:
    options = {field.name for kind in (*GROUPS.values(), RunConfig) for field in fields(kind)}
    assert options | {*OWN, "base"} == validation.RESERVED


def test_two_methods_cannot_have_one_name() -> None:
    with pytest.raises(ValueError, match="the name 'er' is already registered"):
        register("er", ERSettings, **ABOUT)(Mine)
    assert method("er") is ER


def test_classes_of_one_name_in_two_packages_are_two_methods() -> None:
    namesake = type("ER", (Mine,), {"__module__": "their.package", "__qualname__": "ER"})
    with pytest.raises(ValueError, match="the name 'er' is already registered"):
        register("er", ERSettings, **ABOUT)(namesake)


def test_a_method_does_not_take_the_values_of_one_whose_name_begins_its_own() -> None:
    register("er-mine", ERSettings, **ABOUT)(Mine)
    assert data_values("er-mine-balanced-mkd", "cifar10") == {}
    assert data_values("er-balanced-mkd", "cifar10")["optimizer"] == "adam"


def test_an_unknown_name_is_told_the_nearest_one() -> None:
    with pytest.raises(UserError, match="no method 'onproo'; did you mean 'onpro'"):
        method("onproo")


def test_a_list_of_methods_is_a_copy() -> None:
    methods().clear()
    assert method("er") is ER


def test_methods_of_installed_packages_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, EntryPoint())
    assert methods()["theirs"] is Mine
    assert method("theirs") is Mine


def test_a_broken_package_is_left_out_and_the_others_work(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, EntryPoint(error=ImportError("no such thing")), EntryPoint("sound"))
    with pytest.warns(UserWarning, match=r"methods of their\.package left out.*no such thing"):
        assert "sound" in methods()
    assert method("er") is ER


def test_a_package_that_takes_a_name_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    announce(monkeypatch, EntryPoint("er"))
    with pytest.warns(UserWarning, match="the name 'er' is already registered"):
        assert method("er") is ER
