"""`onpro methods`: what can be run."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from onpro.cli.parsing import parse
from onpro.cli.printing import print_table
from onpro.methods import methods


@dataclass(frozen=True)
class MethodsOptions:
    """Options of the list."""

    json: bool = False
    """Print the list as JSON."""


@dataclass(frozen=True)
class Command:
    """The list of methods."""

    options: MethodsOptions


def main(arguments: Sequence[str]) -> int:
    """List the methods."""
    about = "List the methods, their papers and what they keep."
    options = parse(Command, arguments, command="onpro methods", about=about).options
    abouts = [cls.about for cls in methods().values()]
    if options.json:
        print(json.dumps([asdict(a) for a in abouts], indent=1))
        return 0
    print_table(
        ["name", "method", "year", "keeps", "predicts by", "images per step"],
        [[a.name, a.title, str(a.year), a.memory, a.inference, a.images_per_step] for a in abouts],
    )
    return 0
