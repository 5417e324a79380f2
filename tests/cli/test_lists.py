"""`onpro methods`, `onpro recipes`, `onpro datasets` and `onpro streams`."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from onpro.data import sources
from onpro.methods import methods, recipes, wrappers
from onpro.streams import stream_kinds
from tests.cli.conftest import Command


def test_every_method_and_wrapper_is_listed(onpro: Command) -> None:
    answer = onpro("methods")
    assert answer.status == 0
    for name in [*methods(), *wrappers()]:
        assert any(line.split()[:1] == [name] for line in answer.out.splitlines())


def test_methods_and_wrappers_as_json(onpro: Command) -> None:
    listed = json.loads(onpro("methods", "--json").out)
    assert [entry["name"] for entry in listed["methods"]] == list(methods())
    assert [entry["name"] for entry in listed["wrappers"]] == list(wrappers())
    keys = {frozenset(entry) for entry in (*listed["methods"], *listed["wrappers"])}
    assert len(keys) == 1
    for entry in (*listed["methods"], *listed["wrappers"]):
        assert all(entry.values()), f"{entry['name']} has a gap"
        assert 1990 < entry["year"] < 2100


def test_the_recipes_of_a_method_are_listed_with_their_descriptions(onpro: Command) -> None:
    answer = onpro("recipes", "onpro")
    assert answer.status == 0
    listed = [line.split()[1] for line in answer.out.splitlines() if line.startswith(" onpro ")]
    assert listed == list(recipes("onpro"))
    text = " ".join(answer.out.split())
    assert recipes("onpro")["paper"].about in text
    assert not any(line.startswith(" er ") for line in answer.out.splitlines())


def test_recipes_of_all_methods_as_json(onpro: Command) -> None:
    listed = json.loads(onpro("recipes", "--json").out)
    assert [(entry["method"], entry["name"]) for entry in listed] == [
        (method, recipe) for method in methods() for recipe in recipes(method)
    ]
    tuned = next(e for e in listed if (e["method"], e["name"]) == ("er", "tuned"))
    assert tuned["description"] == recipes("er")["tuned"].about
    assert tuned["values"] == recipes("er")["tuned"].values


def test_a_wrapped_method_has_the_recipes_of_its_base(onpro: Command) -> None:
    wrapped = json.loads(onpro("recipes", "er-rot", "--json").out)
    assert [entry["name"] for entry in wrapped] == list(recipes("er"))


def test_what_recipes_say_of_the_paper_is_said_of_the_method_that_it_has(onpro: Command) -> None:
    for name in ("er-mkd", "er-rot-mkd"):
        listed = json.loads(onpro("recipes", name, "--json").out)
        assert listed[0]["description"] == "of er: Tables 1 and 2: the defaults"


def test_recipes_of_an_unknown_method(onpro: Command) -> None:
    answer = onpro("recipes", "onproo")
    assert answer.status == 2
    assert "did you mean 'onpro'?" in answer.err


def test_every_data_set_is_listed(onpro: Command) -> None:
    answer = onpro("datasets")
    assert answer.status == 0
    for source in sources():
        assert any(line.split()[:1] == [source.usage] for line in answer.out.splitlines())


def test_datasets_as_json(onpro: Command) -> None:
    listed = json.loads(onpro("datasets", "--json").out)
    assert [entry["name"] for entry in listed] == [source.usage for source in sources()]
    digits = next(entry for entry in listed if entry["name"] == "digits")
    assert (digits["classes"], digits["tasks"], digits["image_size"]) == (10, 5, 8)
    assert digits["download"] is False
    assert digits["status"] == "included"


def test_the_list_of_data_sets_says_what_is_there(
    onpro: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = {
        entry["name"]: entry["status"] for entry in json.loads(onpro("datasets", "--json").out)
    }
    assert before["folder:PATH"] == before["hf:NAME"] == "your own"
    assert before["cifar10"] == before["mnist"] == "download"
    assert before["imagenet1k"] == "--data-dir"
    assert not (tmp_path / "cache").exists()
    for name in ("cifar-10-batches-py", "MNIST", "train", "val"):
        (tmp_path / "data" / name).mkdir(parents=True)
    listed = json.loads(onpro("datasets", "--json", "--data-dir", "data").out)
    after = {entry["name"]: entry["status"] for entry in listed}
    there = {"cifar10", "mnist", "imagenet100", "imagenet1k"}
    assert {name for name, status in after.items() if status == "there"} == there


def test_every_stream_is_listed_with_its_options(onpro: Command) -> None:
    answer = onpro("streams")
    assert answer.status == 0
    for name, kind in stream_kinds().items():
        assert any(line.split()[:1] == [name] for line in answer.out.splitlines())
        for setting in fields(kind):
            assert f"--{setting.name.replace('_', '-')}" in answer.out


def test_streams_as_json(onpro: Command) -> None:
    listed = json.loads(onpro("streams", "--json").out)
    assert [entry["name"] for entry in listed] == list(stream_kinds())
    blurry = next(entry for entry in listed if entry["name"] == "i-blurry")
    assert blurry["settings"] == {"disjoint_classes": 50.0, "blur": 10.0}
    assert blurry["tasks"] == "hidden"


@pytest.mark.parametrize("command", ["methods", "recipes", "datasets", "streams"])
def test_lists_fit_80_columns_and_go_to_standard_output(onpro: Command, command: str) -> None:
    answer = onpro(command)
    assert max(map(len, answer.out.splitlines())) <= 80
    assert not answer.err


def test_a_list_breaks_no_words(onpro: Command) -> None:
    words = set(onpro("methods").out.split())
    for cls in methods().values():
        about = cls.about
        assert {*about.title.split(), *about.memory.split(), *about.inference.split()} <= words
        assert set(about.images_per_step.split()) <= words
