"""`onpro methods` and `onpro datasets`."""

import json

import pytest

from onpro.data import sources
from onpro.methods import methods, wrappers
from tests.cli.conftest import Command


def test_every_method_and_wrapper_is_listed(onpro: Command) -> None:
    answer = onpro("methods")
    assert answer.status == 0
    for name in [*methods(), *wrappers()]:
        assert any(line.split()[:1] == [name] for line in answer.out.splitlines())


def test_methods_as_json(onpro: Command) -> None:
    listed = json.loads(onpro("methods", "--json").out)
    assert [entry["name"] for entry in listed] == list(methods())
    for entry in listed:
        assert all(entry.values()), f"{entry['name']} has a gap"
        assert 1990 < entry["year"] < 2100


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


@pytest.mark.parametrize("command", ["methods", "datasets"])
def test_lists_fit_80_columns_and_go_to_standard_output(onpro: Command, command: str) -> None:
    answer = onpro(command)
    assert max(map(len, answer.out.splitlines())) <= 80
    assert not answer.err
