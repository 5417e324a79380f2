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
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    assert newest[1] == __version__


def test_the_address_of_the_repository_is_missing_in_one_place_only() -> None:
    texts = [path for end in ("md", "toml", "yml", "cff", "ipynb", "py") for path in pages(end)]
    holders = {path.name for path in texts if "URL-OF-THIS" + "-REPOSITORY" in path.read_text()}
    assert holders <= {"README.md", "CONTRIBUTING.md"}


def pages(ending: str) -> list[Path]:
    """Files of the repository by their ending, except results and what is installed."""
    folders = ("docs", "examples", "src", ".github")
    below = [path for folder in folders for path in (ROOT / folder).rglob(f"*.{ending}")]
    return [*ROOT.glob(f"*.{ending}"), *below]
