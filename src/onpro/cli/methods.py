"""`onpro methods`: list the methods."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from onpro.cli.outlines import outlines, wrapper_outlines
from onpro.cli.parsing import parse
from onpro.cli.printing import print_table


@dataclass(frozen=True)
class Command:
    """Options of the list."""

    json: bool = False
    """Print the list as JSON."""


def main(arguments: Sequence[str]) -> int:
    """List the methods."""
    about = "List the methods, their papers and what they keep."
    options = parse(Command, arguments, command="onpro methods", about=about)
    abouts = [dict(outline.about) for outline in outlines().values()]
    if options.json:
        print(json.dumps(abouts, indent=1))
        return 0
    fields = ("name", "title", "year", "memory", "inference", "images_per_step")
    print_table(
        ["name", "method", "year", "keeps", "predicts by", "images per step"],
        [[str(about[field]) for field in fields] for about in abouts],
    )
    print("\nWrappers of methods; er-rot is the method er wrapped in rot:")
    print_table(
        ["name", "adds", "images per step"],
        [
            [name, outline.about["title"], outline.about["images_per_step"]]
            for name, outline in wrapper_outlines().items()
        ],
    )
    return 0
