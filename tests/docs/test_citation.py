"""How to cite: every paper is there, and the version is right."""

import re
from pathlib import Path

import pytest

from onpro import __version__
from onpro.methods import methods, wrappers

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", [*methods(), *wrappers()])
def test_the_paper_of_every_method_has_an_entry(name: str) -> None:
    about = (methods() | wrappers())[name].about
    entries = (ROOT / "docs" / "cite.md").read_text().split("\n@")
    (entry,) = (one for one in entries if about.paper in one)
    assert re.search(rf"year +?= \{{{about.year}\}}", entry)


def test_the_citation_is_of_this_version() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"version = {{{__version__}}}" in (ROOT / "docs" / "cite.md").read_text()
