"""The documentation site: it builds without warnings, loads nothing from elsewhere, and fits."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from onpro.cli import COMMANDS
from onpro.methods import methods, wrappers

ROOT = Path(__file__).parents[2]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(not find_spec("mkdocs"), reason="needs uv run --group docs"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    subprocess.run(
        [*command, "--site-dir", str(folder)],
        check=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    return folder


def test_the_site_is_whole_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for name in [*methods(), *wrappers()]:
        assert (site / "methods" / name / "index.html").exists()
    command = (site / "reference" / "command" / "index.html").read_text()
    assert all(f'id="onpro-{name}"' in command for name in COMMANDS)
    assert "<img" in (site / "tutorial" / "index.html").read_text()
    assert "<math" in (site / "methods" / "onpro" / "index.html").read_text()
    assert command.count("Settings of OnPro.") == 1
    assert '<table data-names="third">' in (site / "leaderboard" / "index.html").read_text()
    faq = (site / "faq" / "index.html").read_text()
    assert '<span class="unbroken">--deterministic</span>' in faq
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert "arithmatex" not in text, f"an equation of {page} is not shown"
        assert "<mi>log</mi>" not in text, f"a function of {page} has no space around it"
        loaded = re.findall(
            r'<(?:script|img|link rel="(?!canonical)[^"]*")[^>]*="(https?:[^"]*)', text
        )
        assert not loaded, page
    assert not re.search(r"url\(\W?https?:", (site / "site.css").read_text())


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("no Chromium")
    with sync.sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_no_page_is_wider_than_the_screen(
    browser: Any, site: Path, width: int, scheme: str
) -> None:
    pages = [page for page in site.rglob("index.html") if "repository" not in page.parts]
    assert len(pages) > 40
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    wide = """[...document.querySelectorAll(".md-content math, .md-content img")]
        .filter((one) => !one.closest("table, .equation"))
        .filter((one) => one.getBoundingClientRect().right > innerWidth).length"""
    for page in pages:
        tab.goto(page.as_uri())
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, page
        assert tab.evaluate(wide) == 0, page
    tab.close()
