"""`onpro datasets`: what can be learned from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.data import Source, sources


@dataclass(frozen=True)
class DatasetsOptions:
    """Options of the list."""

    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class Command:
    """The list of data sets."""

    options: DatasetsOptions


def main(arguments: Sequence[str]) -> int:
    """List the data sets."""
    about = "List the data sets and how to name your own."
    options = parse(Command, arguments, command="onpro datasets", about=about).options
    if options.json:
        print(json.dumps([_facts(source) for source in sources()], indent=1))
        return 0
    print_table(
        ["name", "what", "classes", "tasks", "image", "comes from"],
        [
            [
                source.usage,
                source.description,
                str(source.classes or "yours"),
                str(source.tasks or "classes / 2"),
                f"{source.image_size} px" if source.image_size else "as is",
                "download" if source.download else "disk" if source.argument else "package",
            ]
            for source in sources()
        ],
    )
    return 0


def _facts(source: Source) -> dict[str, object]:
    return {
        "name": source.usage,
        "description": source.description,
        "classes": source.classes,
        "tasks": source.tasks,
        "image_size": source.image_size,
        "download": source.download,
        "for_tests": source.for_tests,
    }
