"""What a page does in a browser."""

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onpro.cli import main
from onpro.experiments.grouping import found
from onpro.reports import page
from onpro.runs import Finished
from tests.reports.made_up import many, result, save

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
METHODS = ("derpp", "er", "mir", "onpro")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    reason = "playwright is not installed: pip install playwright"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


class Tab:
    """A page in the browser that notes what goes wrong in it."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 844}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        began = time.perf_counter()
        self.page.goto(path.as_uri())
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        self.seconds = time.perf_counter() - began

    def column(self, number: int) -> list[str]:
        """Texts of a column of the results that are to be seen."""
        cells = self.page.locator(f"#table tbody tr > :nth-child({number})")
        texts: list[str] = cells.all_inner_texts()
        return texts

    def tip(self) -> str:
        """Text of the tooltip; empty where none is shown."""
        tip = self.page.locator("#tip")
        return str(tip.inner_text()) if tip.is_visible() else ""


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of real, small runs: four methods, three seeds; one with another memory."""
    out = tmp_path_factory.mktemp("runs")
    options = ("--data", "tiny", "--limit-per-class", "10", "--seeds", "3", "--out", str(out))
    for method in METHODS:
        assert main(["run", method, "--memory", "20", *options]) == 0
    assert main(["run", "er", "--memory", "30", *options]) == 0
    path = out / "report.html"
    assert main(["report", str(out), "--out", str(path)]) == 0
    return path


@pytest.fixture
def tab(browser: Any, report_file: Path) -> Iterator[Tab]:
    opened = Tab(browser, report_file)
    yield opened
    opened.context.close()
    assert opened.errors == []


def test_every_section_shows_something(tab: Tab) -> None:
    assert len(tab.column(2)) == 5
    shown = {
        "#accuracy-charts svg .line": 5,
        "#accuracy-charts svg .band": 5,
        "#forgetting-charts svg .line": 5,
        "#matrices-maps canvas": 5,
        "#confusion-maps canvas": 5,
        "#time-charts svg .dot": 5,
        "#run-list > details": 5,
    }
    assert {name: tab.page.locator(name).count() for name in shown} == shown
    assert "15 runs of 5 experiments on tiny" in tab.page.inner_text("#about")


def test_a_click_on_a_column_sorts_by_it_and_another_turns_it_round(tab: Tab) -> None:
    head = tab.page.locator("#table thead tr:last-child th", has_text="mean").first
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    values = [float(text) for text in tab.column(7)]
    assert values == sorted(values, reverse=True)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(text) for text in tab.column(7)] == sorted(values)
    assert tab.page.locator("[aria-sort=ascending], [aria-sort=descending]").count() == 1


def test_filters_narrow_everything(tab: Tab) -> None:
    tab.page.get_by_label("30", exact=True).check(force=True)
    assert tab.column(2) == ["er, limit_per_class=10"]
    assert tab.page.locator("#accuracy-charts .line").count() == 1
    assert tab.page.locator("#run-list > details").count() == 1
    assert "1 experiment, 3 runs" in tab.page.inner_text("#shown")
    tab.page.get_by_label("onpro, limit_per_class=10", exact=True).check(force=True)
    assert tab.column(2) == []
    assert "No experiment is left" in tab.page.inner_text("#shown")
    assert tab.page.locator(".empty").count() >= 5
    tab.page.get_by_label("30", exact=True).uncheck(force=True)
    assert tab.column(2) == ["onpro, limit_per_class=10"]


def test_a_colour_stays_with_its_experiment(tab: Tab) -> None:
    def colours() -> dict[str, str]:
        rows = tab.page.locator("#table tbody tr").all()
        return {
            row.locator("input").get_attribute("aria-label"): row.locator(".swatch").get_attribute(
                "class"
            )
            for row in rows
        }

    before = colours()
    assert len(set(before.values())) == 5
    tab.page.get_by_label("onpro, limit_per_class=10", exact=True).check(force=True)
    assert colours().items() <= before.items()


def test_unticking_removes_a_line_and_keeps_the_focus(tab: Tab) -> None:
    tick = tab.page.locator("#table tbody input").first
    tick.focus()
    tick.press("Space")
    assert tab.page.locator("#accuracy-charts .line").count() == 4
    assert tab.page.evaluate("document.activeElement.type") == "checkbox"
    tab.page.get_by_label("30", exact=True).check(force=True)
    tab.page.get_by_label("30", exact=True).uncheck(force=True)
    assert tab.page.locator("#accuracy-charts .line").count() == 5


def test_tooltips_by_pointer(tab: Tab) -> None:
    chart = tab.page.locator("#accuracy-charts svg")
    chart.scroll_into_view_if_needed()
    chart.hover()
    assert "task 2" in tab.tip()
    assert all(method in tab.tip() for method in METHODS)
    assert "95 %" in tab.tip()
    tab.page.mouse.move(1, 1)
    assert tab.tip() == ""
    cells = tab.page.locator("#confusion-maps canvas").first
    cells.scroll_into_view_if_needed()
    cells.hover()
    assert "taken for stripes" in tab.tip()


def test_charts_are_explored_by_keyboard(tab: Tab) -> None:
    chart = tab.page.locator("#accuracy-charts svg")
    tab.page.locator("#bands input:checked").focus()
    tab.page.keyboard.press("Tab")
    assert chart.evaluate("(chart) => chart === document.activeElement")
    assert "task 3" in tab.tip()
    tab.page.keyboard.press("Home")
    assert "task 1" in tab.tip()
    tab.page.keyboard.press("ArrowRight")
    assert "task 2" in tab.tip()
    tab.page.keyboard.press("Escape")
    assert tab.tip() == ""
    tab.page.keyboard.press("Tab")
    cells = tab.page.locator("#matrices-maps canvas").first
    cells.press("ArrowDown")
    assert "task 1 after task 2" in tab.tip()
    cells.press("ArrowRight")
    assert "task 2 after task 2" in tab.tip()
    point = tab.page.locator("#time-charts svg")
    point.press("End")
    assert "training" in tab.tip()


def test_bands_can_be_chosen(tab: Tab) -> None:
    first = "#accuracy-charts .band >> nth=0"
    before = tab.page.get_attribute(first, "points")
    tab.page.get_by_label("95 % interval").check(force=True)
    assert tab.page.get_attribute(first, "points") != before
    tab.page.get_by_label("none").check(force=True)
    assert tab.page.locator(".band").count() == 0


def test_settings_and_versions_unfold(tab: Tab) -> None:
    details = tab.page.locator("#run-list > details").first
    details.locator("summary").press("Enter")
    details.locator("table").wait_for()
    text = details.inner_text()
    assert all(name in text for name in ("learning_rate", "torch", "python", "threads"))
    assert details.locator("tbody tr").count() == 3


def test_what_is_drawn_can_be_read(tab: Tab) -> None:
    drawings = tab.page.locator("svg, canvas")
    for drawing in drawings.all():
        assert drawing.get_attribute("role") == "img"
        assert len(drawing.get_attribute("aria-label")) > 20
    alternatives = tab.page.locator("figure details")
    assert alternatives.count() == drawings.count()
    alternatives.first.locator("summary").click()
    table = alternatives.first.locator("table")
    table.wait_for()
    assert table.locator("caption").count() == 1
    assert table.locator("thead th[scope=col]").count() == 4
    assert table.locator("tbody th[scope=row]").count() == 5


@pytest.mark.parametrize("width", [360, 390, 768])
def test_small_screens_do_not_scroll_sideways(browser: Any, report_file: Path, width: int) -> None:
    tab = Tab(browser, report_file, width, color_scheme="dark")
    for summary in tab.page.locator("summary").all()[:12]:
        if summary.is_visible():
            summary.click()
    assert tab.page.evaluate("document.documentElement.scrollWidth") == width
    assert tab.errors == []
    tab.context.close()


def test_a_change_of_scheme_draws_the_maps_again(tab: Tab) -> None:
    ink = "document.querySelector('canvas').toDataURL()"
    light = tab.page.evaluate(ink)
    tab.page.emulate_media(color_scheme="dark")
    for _ in range(50):  # the page's policy forbids what wait_for_function does
        if tab.page.evaluate(ink) != light:
            break
        tab.page.wait_for_timeout(20)
    assert tab.page.evaluate(ink) != light


def test_hostile_texts_are_shown_and_not_run(browser: Any, tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    content = result() | {"classes": [f"{hostile} {k}" for k in range(6)], "recipe": hostile}
    saved = save(tmp_path, content, settings={hostile: hostile})
    path = tmp_path / "page.html"
    path.write_text(page(found([Finished(saved.folder, content)]), skipped=[hostile]))
    tab = Tab(browser, path)
    for summary in tab.page.locator("summary").all():
        summary.click()
    tab.page.locator("#confusion-maps canvas").press("End")
    assert hostile in tab.tip()
    assert hostile in tab.page.inner_text("#run-list")
    assert tab.page.locator("img").count() == 0
    assert tab.errors == []
    tab.context.close()


def test_two_thousand_runs_open_at_once(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(page(found(many(runs=2000, seeds=1, tasks=10, classes=30))))
    tab = Tab(browser, path)
    assert tab.seconds < 3
    assert len(tab.column(2)) == 200
    tab.page.get_by_text("Show all 2,000 experiments").first.click()
    assert len(tab.column(2)) == 2000
    assert tab.errors == []
    tab.context.close()
