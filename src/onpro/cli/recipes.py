"""`onpro recipes [METHOD]`: list the recipes, named variations of methods."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import tyro

from onpro.cli.outlines import outline, outlines
from onpro.cli.parsing import parse
from onpro.cli.printing import print_table


@dataclass(frozen=True)
class Command:
    """Options of the list."""

    method: tyro.conf.Positional[str | None] = None
    """Method whose recipes are listed; all methods without one."""

    json: bool = False
    """Print the list as JSON, with the settings that each recipe changes."""


def main(arguments: Sequence[str]) -> int:
    """List the recipes."""
    about = "List the recipes, the named variations of a method: onpro run METHOD --recipe RECIPE."
    options = parse(Command, arguments, command="onpro recipes", about=about)
    name = options.method
    known = outlines() if name is None else {name: outline(name)}
    listed = [
        (method, recipe, found)
        for method, outlined in known.items()
        for recipe, found in outlined.recipes.items()
    ]
    if options.json:
        keys = ("method", "name", "description", "values")
        entries = [(method, name, found.about, found.values) for method, name, found in listed]
        print(json.dumps([dict(zip(keys, entry, strict=True)) for entry in entries], indent=1))
        return 0
    print_table(
        ["method", "recipe", "what it is"],
        [[method, recipe, found.about] for method, recipe, found in listed],
    )
    return 0
