"""Errors of the user are one sentence."""

import pytest

from onpro.errors import UserError, unknown


def test_an_unknown_name_is_told_the_nearest_one() -> None:
    error = unknown("method", "onproo", ["onpro", "er"])
    assert isinstance(error, UserError)
    assert str(error) == "there is no method 'onproo'; did you mean 'onpro'? Known: er, onpro."


def test_a_name_like_no_other_gets_no_suggestion() -> None:
    assert str(unknown("method", "zzz", ["onpro"])) == "there is no method 'zzz'. Known: onpro."


@pytest.mark.parametrize(("name", "known"), [("foo", "onpro"), ("--disjoint", "--json")])
def test_a_distant_name_is_not_suggested(name: str, known: str) -> None:
    assert "did you mean" not in str(unknown("name", name, [known]))
    assert str(unknown("name", name, [known], listed=False, see="x")).endswith("; see x.")


def test_known_names_may_be_left_out_or_missing() -> None:
    assert str(unknown("option", "--jsn", ["--json"], listed=False)).endswith("'--json'?")
    assert str(unknown("recipe", "x", [])) == "there is no recipe 'x'."


@pytest.mark.parametrize("name", ["", "onpro"])
def test_the_sentence_is_one_line(name: str) -> None:
    assert "\n" not in str(unknown("method", name, ["er", "onpro"]))
