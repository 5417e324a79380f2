"""Published values of methods, from `published.toml` and Table 1 of the paper."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from onpro.experiments import paper

PAPER = "onpro"
"""The source of Table 1."""


@dataclass(frozen=True)
class Published:
    """A published average accuracy."""

    method: str
    recipe: str | None
    data: str
    memory: int
    text: str
    """As printed, in percent, such as 38.5 ± 0.5."""
    source: str
    """A key of `sources()`."""
    note: str = ""

    @property
    def mean(self) -> float:
        """The mean."""
        return float(self.text.partition("±")[0])


@cache
def sources() -> Mapping[str, str]:
    """Return the sources of published values: full references by short names."""
    return dict(_file()["sources"])


@cache
def published() -> tuple[Published, ...]:
    """Return all published values."""
    found = [
        Published(method, None, data, memory, " ± ".join(text.split("±")), PAPER)
        for method, row in paper.AVERAGE_ACCURACY.items()
        for (data, memory), text in zip(paper.COLUMNS, row.split(), strict=True)
    ]
    for row in _file()["values"]:
        method, _, recipe = row.pop("method").partition("/")
        source, note = row.pop("source"), row.pop("note", "")
        found += [
            Published(method, recipe or None, data, int(memory), text, source, note)
            for data, cells in row.items()
            for memory, text in cells.items()
        ]
    return tuple(found)


def _file() -> dict[str, Any]:
    return tomllib.loads(files("onpro.experiments").joinpath("published.toml").read_text("utf-8"))
