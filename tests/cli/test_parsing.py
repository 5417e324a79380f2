"""Options from anybody's dataclasses, those whose annotations are strings among them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onpro.cli.parsing import parse
from onpro.errors import UserError


@dataclass(frozen=True)
class Sound:
    """Options."""

    loud: bool = True
    """Whether it is loud."""

    how_often: int = 1
    """How often it sounds."""


@dataclass(frozen=True)
class Command:
    """A command."""

    sound: Sound


def sound(*arguments: str, default: Sound | None = None) -> Sound:
    start = None if default is None else Command(default)
    return parse(Command, arguments, command="ring", about="Ring.", default=start).sound


def test_defaults_and_options() -> None:
    assert sound() == Sound()
    assert sound("--no-loud", "--how-often", "3") == Sound(loud=False, how_often=3)
    assert sound("--how_often=2") == Sound(how_often=2)


def test_given_defaults_hold_where_no_option_is_given() -> None:
    quiet = Sound(loud=False, how_often=5)
    assert sound(default=quiet) == quiet
    assert sound("--loud", default=quiet) == Sound(loud=True, how_often=5)


def test_a_negation_is_only_for_switches() -> None:
    with pytest.raises(UserError, match="no option '--no-how-often'"):
        sound("--no-how-often")


def test_a_mistake_names_the_command_to_ask() -> None:
    with pytest.raises(UserError, match="--how-often takes INT, not 'x'; see ring --help"):
        sound("--how-often", "x")
