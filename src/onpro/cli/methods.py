"""`onpro methods`: list the methods and wrappers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from onpro.cli.outlines import outlines, wrapper_outlines
from onpro.cli.parsing import parse
from onpro.cli.printing import print_table


@dataclass(frozen=True)
class Command:
    """Options of the lists."""

    json: bool = False
    """Print both lists as JSON."""


def main(arguments: Sequence[str]) -> int:
    """List the methods and wrappers."""
    about = "List the methods and what they store, and the wrappers of methods."
    options = parse(Command, arguments, command="onpro methods", about=about)
    methods = [outline.about for outline in outlines().values()]
    wrappers = [outline.about for outline in wrapper_outlines().values()]
    if options.json:
        print(json.dumps({"methods": methods, "wrappers": wrappers}, indent=1))
        return 0
    fields = ("name", "title", "year", "memory", "inference", "images_per_step")
    print_table(
        ["name", "method", "year", "stores", "predicts by", "images per step"],
        [[str(about[field]) for field in fields] for about in methods],
    )
    print("\nWrappers of methods; er-rot is the method er wrapped in rot:")
    print_table(
        ["name", "adds", "images per step"],
        [[about[field] for field in ("name", "title", "images_per_step")] for about in wrappers],
    )
    return 0
