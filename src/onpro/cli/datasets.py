"""`onpro datasets`: list the data sets."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.data import Source, sources
from onpro.data.download import default_folder


@dataclass(frozen=True)
class Command:
    """Options of the list."""

    data_dir: Path | None = None
    """Folder of data sets. (default: $ONPRO_DATA, else the user's cache)"""

    json: bool = False
    """Print the list as JSON."""


def main(arguments: Sequence[str]) -> int:
    """List the data sets."""
    about = "List the data sets and how to name your own."
    options = parse(Command, arguments, command="onpro datasets", about=about)
    folder = options.data_dir or default_folder()
    if options.json:
        print(json.dumps([_facts(source, folder) for source in sources()], indent=1))
        return 0
    print_table(
        ["name", "what", "images", "classes", "tasks", "size", "status"],
        [
            [
                source.usage,
                source.description,
                f"{source.images:,}" if source.images else "",
                str(source.classes or ""),
                str(source.tasks or ""),
                f"{source.image_size} px" if source.image_size else "",
                _status(source, folder),
            ]
            for source in sources()
        ],
    )
    return 0


def _status(source: Source, folder: Path) -> str:
    """Return whether the data are there, or where they come from."""
    if source.argument and not source.optional:
        return "your own"
    if not source.files:
        return "included"
    if source.is_in(folder):
        return "there"
    return "download" if source.download else "--data-dir"


def _facts(source: Source, folder: Path) -> dict[str, object]:
    return {
        "name": source.usage,
        "description": source.description,
        "images": source.images,
        "classes": source.classes,
        "tasks": source.tasks,
        "image_size": source.image_size,
        "download": source.download,
        "status": _status(source, folder),
        "for_tests": source.for_tests,
    }
