"""`onpro streams`: list the kinds of streams."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.streams import StreamKind, stream_kinds


@dataclass(frozen=True)
class Command:
    """Options of the list."""

    json: bool = False
    """Print the list as JSON."""


def main(arguments: Sequence[str]) -> int:
    """List the kinds of streams."""
    about = "List the kinds of streams and their settings, for --stream KIND."
    options = parse(Command, arguments, command="onpro streams", about=about)
    kinds = stream_kinds().values()
    if options.json:
        print(json.dumps([_facts(kind) for kind in kinds], indent=1))
        return 0
    print_table(
        ["name", "what arrives when", "tasks", "options and their defaults"],
        [[kind.name, kind.description, _tasks(kind), _options(kind)] for kind in kinds],
    )
    return 0


def _tasks(kind: type[StreamKind]) -> str:
    return "announced" if kind.announced else "hidden" if kind.has_tasks else "none"


def _options(kind: type[StreamKind]) -> str:
    shown = []
    for field in fields(kind):
        value = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        shown.append(f"--{field.name.replace('_', '-')} {value}")
    return " ".join(shown)


def _facts(kind: type[StreamKind]) -> dict[str, object]:
    return {
        "name": kind.name,
        "description": kind.description,
        "tasks": _tasks(kind),
        "settings": {field.name: field.default for field in fields(kind)},
    }
