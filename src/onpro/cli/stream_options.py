"""The option `--stream KIND`, the options that the kind has, and those of a shortcut."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from itertools import pairwise
from typing import Any

from onpro.cli.parsing import usable_path
from onpro.errors import UserError
from onpro.streams import Disjoint, ShortcutSettings, StreamKind, find_kind, stream_kinds
from onpro.user_file import split_file

KIND = "stream_kind"
"""Name of the group of options that a kind of stream has, in a command."""


@dataclass(frozen=True)
class ShortcutOptions:
    """Cues in training images; see `docs/shortcuts.md`."""

    shortcut: float = 0.0
    """Paint a cue into this share of each class's training images, from 0 to 1: a coloured patch
    that tells the classes of a task apart and belongs to other classes in other tasks. After each
    task the method is tested without cues, with true and with wrong ones."""

    shortcut_size: float = ShortcutSettings.size
    """Edge of the cue as a share of the image's edge, at most 0.5."""

    shortcut_strength: float = ShortcutSettings.strength
    """Opacity of the cue, at most 1."""

    def check(self) -> None:
        """Raise UserError for options of a cue that is not painted."""
        for field in fields(self)[1:]:
            if not self.shortcut and getattr(self, field.name) != field.default:
                option = f"--{field.name.replace('_', '-')}"
                raise UserError(f"{option} is for --shortcut SHARE: add that, or leave it out.")


def chosen_kind(arguments: Sequence[str]) -> type[StreamKind]:
    """Return the kind of stream that the arguments name; disjoint if they name none."""
    name = Disjoint.name
    for word, following in pairwise([*arguments, "--"]):
        option, equals, value = word.partition("=")
        if option == "--stream":
            name = value if equals else following
    if name.startswith("-"):  # the value is missing, which is told when options are parsed
        return Disjoint
    if file := split_file(name):
        usable_path(file[0])
    return find_kind(name)


def command_with(kind: type[StreamKind], **groups: type[Any]) -> Any:
    """Return a dataclass of groups of options with those of a kind of stream, if it has any.

    Settings of a method come last.
    """
    for name, group in groups.items():
        shared = _names(group) & _names(kind)
        if shared:
            option = f"--{min(shared).replace('_', '-')}"
            raise UserError(f"the {name} and the stream {kind.name} both have an option {option}.")
    own = {KIND: kind} if fields(kind) else {}
    last = {"method": groups.pop("method")} if "method" in groups else {}
    return make_dataclass("Command", [*(groups | own | last).items()])


def stream_of(parsed: Any, kind: type[StreamKind]) -> StreamKind:
    """Return the chosen kind of stream with its parsed options, if it has any."""
    return getattr(parsed, KIND) if fields(kind) else kind()


def check_stream_options(kind: type[StreamKind], command: Any, arguments: Sequence[str]) -> None:
    """Refuse options of other kinds, naming these."""
    known = {name for group in fields(command) for name in _names(group.type)}
    for word in arguments:
        option = word.partition("=")[0]
        setting = option.removeprefix("--").replace("-", "_")
        if option.startswith("--") and setting not in known:
            others = [name for name, other in stream_kinds().items() if setting in _names(other)]
            if others:
                raise UserError(
                    f"the stream {kind.name} has no option {option}: add --stream "
                    f"{' or --stream '.join(others)}, or leave it out."
                )


def _names(group: Any) -> set[str]:
    return {field.name for field in fields(group)}
