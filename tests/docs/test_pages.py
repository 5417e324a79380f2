"""Pages and program agree."""

import re
from dataclasses import asdict, fields
from pathlib import Path

import pytest

from onpro.data import sources
from onpro.errors import UserError
from onpro.methods import method, methods, recipes, wrappers
from onpro.runs.schema import NEEDED, OPTIONAL
from onpro.streams import find_kind, stream_kinds
from onpro.training import Metrics

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", [*methods(), *wrappers()])
def test_every_method_and_wrapper_has_a_page_with_its_settings(name: str) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    page += (ROOT / "docs" / "encoders.md").read_text()  # settings of pretrained encoders
    for setting in fields((methods() | wrappers())[name].settings_type):
        option = setting.name.replace("_", "-")
        assert f"`{setting.name}`" in page or f"`--{option}`" in page, setting.name


@pytest.mark.parametrize("name", methods())
def test_every_recipe_is_on_the_page_of_its_method(name: str) -> None:
    page = (ROOT / "docs" / "methods" / f"{name}.md").read_text()
    listed = page[page.index("\n## Recipes\n") :]
    for recipe in recipes(name):
        assert f"`{recipe}`" in listed, recipe


def can_wrap(wrapper: str, name: str) -> bool:
    try:
        method(f"{name}-{wrapper}")
    except UserError:
        return False
    return True


@pytest.mark.parametrize("wrapper", wrappers())
def test_the_page_of_a_wrapper_names_the_methods_it_wraps(wrapper: str) -> None:
    page = (ROOT / "docs" / "methods" / f"{wrapper}.md").read_text()
    for name in methods():
        assert (f"`{name}-{wrapper}`" in page) == can_wrap(wrapper, name), name


@pytest.mark.parametrize("name", stream_kinds())
def test_every_kind_of_stream_is_on_its_page_with_its_settings(name: str) -> None:
    page = (ROOT / "docs" / "streams.md").read_text()
    (row,) = re.findall(rf"^\| `{name}` \|.*$", page, flags=re.MULTILINE)
    for setting in fields(find_kind(name)):
        assert f"`{setting.name}`" in row, setting.name
    assert f"**{name}**" in page or name == "disjoint"


def test_the_overview_lists_every_method() -> None:
    overview = (ROOT / "docs" / "methods" / "README.md").read_text()
    for name, cls in methods().items():
        assert f"| [{name}]({name}.md) | {cls.about.title} | {cls.about.year} |" in overview


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md"])
def test_pages_count_methods_right(page: str) -> None:
    assert f"{len(methods())} methods and {len(wrappers())} wrappers" in (ROOT / page).read_text()


def test_the_overview_lists_every_wrapper_with_the_methods_it_wraps() -> None:
    overview = (ROOT / "docs" / "methods" / "README.md").read_text()
    for name, cls in wrappers().items():
        wrapped = ", ".join(base for base in methods() if can_wrap(name, base))
        row = rf"\| \[{name}\]\({name}.md\) \| {cls.about.title} \| [^|]+ \| {wrapped} \| "
        assert re.search(row + re.escape(cls.about.images_per_step), overview), name


def test_the_page_on_data_lists_every_data_set() -> None:
    page = (ROOT / "docs" / "data.md").read_text()
    for source in sources():
        row = rf"\| `{source.usage}` \| [^|]+ \| {source.classes or 'yours'} \| "
        row += rf"{source.tasks or 'classes / 2'} \| {source.image_size}×{source.image_size}"
        assert re.search(row, page), source.name


def test_the_page_on_metrics_explains_all_of_a_result_and_computes_right() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    for name in NEEDED | OPTIONAL:
        assert f"`{name}`" in page, name
    numbers = re.findall(r"^\| after task \d \|(.*)\|$", page, flags=re.MULTILINE)
    accuracy = [[float(cell) if cell.strip() else None for cell in n.split("|")] for n in numbers]
    for name, value in asdict(Metrics.of(accuracy)).items():
        row = re.search(rf"^\| `{name}` \| [^|]+ \| ([\d.]+) \|", page, flags=re.MULTILINE)
        assert row, name
        assert float(row[1]) == pytest.approx(value, abs=0.0005), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target
