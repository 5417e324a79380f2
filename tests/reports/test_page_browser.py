"""What a page does in a browser."""

import math
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onpro.cli import main
from onpro.experiments.experiment import CUE_MEASURES
from onpro.experiments.grouping import found
from onpro.reports import page
from onpro.runs import Finished
from onpro.runs.reading import read_runs
from tests.reports.made_up import many, result, save

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
)
METHODS = ("derpp", "er", "mir", "onpro")
ROOT = Path(__file__).parents[2]
WIDTHS = [360, 390, 768, 1024, 1280, 1920]

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


class Box(NamedTuple):
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Return whether two boxes share more than an edge."""
        return (
            min(self.right, other.right) - max(self.left, other.left) > 0.5
            and min(self.bottom, other.bottom) - max(self.top, other.top) > 0.5
        )

    def gap(self, other: "Box") -> float:
        """Return the distance to the centre of another box."""
        x, y = (other.left + other.right) / 2, (other.top + other.bottom) / 2
        across = max(self.left - x, x - self.right, 0)
        return math.hypot(across, max(self.top - y, y - self.bottom, 0))

    def is_inside(self, other: "Box") -> bool:
        """Return whether nothing of this box is outside the other one."""
        return (
            self.left >= other.left - 0.5
            and self.right <= other.right + 0.5
            and self.top >= other.top - 0.5
            and self.bottom <= other.bottom + 0.5
        )


def overlapping(boxes: Sequence[Box]) -> list[tuple[Box, Box]]:
    return [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]


class Tab:
    """A page in the browser that notes what goes wrong in it."""

    def __init__(self, browser: Any, path: Path, width: int = 1280, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 844}, **options)
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(dialog.message))
        self.page.on("request", self._check_request)
        began = time.perf_counter()
        self.page.goto(path.as_uri())
        self.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        self.seconds = time.perf_counter() - began

    def _check_request(self, request: Any) -> None:
        if not request.url.startswith(("file:", "data:")):
            self.errors.append(request.url)

    def column(self, title: str) -> list[str]:
        """Return the texts of the first column of the results with a title."""
        heads = self.page.locator("#table thead th").all_inner_texts()
        number = heads.index(title) + 1
        cells = self.page.locator(f"#table tbody tr > :nth-child({number})")
        texts: list[str] = cells.all_inner_texts()
        return texts

    def boxes(self, selector: str) -> list[Box]:
        """Return where the visible elements are on the page."""
        found = self.page.evaluate(
            """(selector) => [...document.querySelectorAll(selector)].map((element) => {
                const { left, top, right, bottom } = element.getBoundingClientRect();
                return [left, top, right, bottom];
            })""",
            selector,
        )
        return [Box(*box) for box in found if box[2] > box[0] and box[3] > box[1]]

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
    assert len(tab.column("method")) == 5
    shown = {
        "#accuracy-charts svg .line": 5,
        "#accuracy-charts svg .band": 5,
        "#forgetting-charts svg .line": 5,
        "#matrices-maps canvas": 5,
        "#confusion-maps canvas": 5,
        "#classes-maps canvas": 5,
        "#memory-maps canvas": 5,
        "#pictures img": 4,
        "#time-charts svg .dot": 5,
        "#run-list > details": 5,
    }
    assert {name: tab.page.locator(name).count() for name in shown} == shown
    assert "15 runs of 5 experiments on tiny" in tab.page.inner_text("#about")


def test_a_click_on_a_column_sorts_by_it_and_another_turns_it_round(tab: Tab) -> None:
    head = tab.page.locator("#table thead th", has_text="accuracy")
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "descending"

    def means() -> list[float]:
        return [float(text.split(" ±")[0]) for text in tab.column("accuracy,\u00a0%")]

    values = means()
    assert values == sorted(values, reverse=True)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "ascending"
    assert means() == sorted(values)
    assert tab.page.locator("[aria-sort=ascending], [aria-sort=descending]").count() == 1


def test_filters_narrow_everything(tab: Tab) -> None:
    tab.page.get_by_label("30", exact=True).check(force=True)
    assert tab.column("method") == ["er, limit_per_class=10"]
    assert tab.page.locator("#accuracy-charts .line").count() == 1
    assert tab.page.locator("#run-list > details").count() == 1
    assert "1 experiment, 3 runs" in tab.page.inner_text("#shown")
    tab.page.get_by_label("onpro, limit_per_class=10", exact=True).check(force=True)
    assert tab.column("method") == []
    assert "No experiment is left" in tab.page.inner_text("#shown")
    assert tab.page.locator(".empty").count() >= 5
    tab.page.get_by_label("30", exact=True).uncheck(force=True)
    assert tab.column("method") == ["onpro, limit_per_class=10"]


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


def test_the_leader_of_a_line_that_ends_earlier_does_not_look_like_the_line(
    browser: Any, tmp_path: Path
) -> None:
    for tasks in (3, 5):
        save(tmp_path, result("er", tasks=tasks, memory=tasks))
    path = tmp_path / "page.html"
    path.write_text(page(found(read_runs([tmp_path]))), encoding="utf-8")
    tab = Tab(browser, path)
    dashes = tab.page.locator("#accuracy .leader").evaluate_all(
        "(leaders) => leaders.map((one) => getComputedStyle(one).strokeDasharray)"
    )
    tab.context.close()
    assert sorted(dash == "none" for dash in dashes) == [False, True]


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
    assert len(tab.column("method")) == 200
    tab.page.get_by_text("Show all 2,000 experiments").first.click()
    assert len(tab.column("method")) == 2000
    assert tab.errors == []
    tab.context.close()


def test_cues_are_a_table_of_the_experiments_that_have_them(browser: Any, tmp_path: Path) -> None:
    cues = dict.fromkeys(CUE_MEASURES.values(), 12.5)
    runs = [Finished(tmp_path / "a", result("er") | cues), Finished(tmp_path / "b", result("scr"))]
    (tmp_path / "report.html").write_text(page(found(runs)))
    tab = Tab(browser, tmp_path / "report.html")
    (row,) = tab.page.locator("#cues-tables tbody tr").all_inner_texts()
    assert row.split() == ["er", *["12.5"] * 9]
    tab.context.close()
    assert tab.errors == []


@pytest.fixture(scope="module")
def stored_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of stored results: several data sets, memories, precisions, settings; n from 1."""
    files = ("cifar10.jsonl", "cifar10-precision.jsonl", "cifar100.jsonl", "tuned")
    path = tmp_path_factory.mktemp("stored") / "report.html"
    path.write_text(page(found(read_runs([ROOT / "results" / file for file in files]))))
    return path


@pytest.fixture(scope="module")
def large_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of 14 methods on 100 tasks, half of them with 100 classes and half with 200."""
    path = tmp_path_factory.mktemp("large") / "report.html"
    runs = []
    for number in range(14):
        classes = 200 if number % 2 else 100
        names = [f"a long name of a class, {k}" for k in range(classes)]
        content = result(f"method-{number}", tasks=100, classes=classes) | {"classes": names}
        runs.append(Finished(Path(f"runs/{number}"), content))
    path.write_text(page(found(runs)))
    return path


@pytest.mark.parametrize("width", WIDTHS)
def test_no_column_of_the_results_is_cut_off(browser: Any, stored_file: Path, width: int) -> None:
    tab = Tab(browser, stored_file, width)
    (frame,) = tab.boxes("#results .box")
    assert frame.left >= 0
    assert frame.right <= width
    cells = tab.boxes("#table th, #table td")
    assert all(frame.left <= cell.left and cell.right <= frame.right for cell in cells)
    overflowing = """[...document.querySelectorAll("#table th, #table td")]
        .filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.innerText)"""
    assert tab.page.evaluate(overflowing) == []
    row = tab.page.locator("#table tbody tr", has_text="onpro (without-ope)")
    assert all(text in row.inner_text() for text in ("54.7 ± 0.9", "24.6 ± 2.6", "53.1", "cifar10"))
    if width > 600:
        assert "510" in row.inner_text()
    assert tab.errors == []
    tab.context.close()


def test_the_methods_of_one_data_set_and_one_memory_are_drawn_at_first(
    browser: Any, stored_file: Path
) -> None:
    tab = Tab(browser, stored_file)
    ticks = tab.page.locator("#table tbody input:checked").all()
    names = [tick.get_attribute("aria-label") for tick in ticks]
    assert all(", cifar10, M = 200" in name for name in names)
    methods = [name.removeprefix("draw ").split(",")[0] for name in names]
    assert len(methods) == len(set(methods)) == 14
    assert not any("=" in name.split(", cifar10")[0] for name in names)
    assert tab.page.locator("#time-charts svg").count() == 1
    tab.context.close()


def test_many_settings_do_not_fill_the_filter(browser: Any, stored_file: Path) -> None:
    tab = Tab(browser, stored_file)
    values = [
        box.get_attribute("value") for box in tab.page.locator("#filters [name=method]").all()
    ]
    assert len(values) == 14
    tab.page.get_by_label("gdumb", exact=True).check(force=True)
    names = tab.column("method")
    assert len(names) > 3
    assert all(name.startswith("gdumb") for name in names)
    tab.context.close()


def test_rows_of_one_name_can_be_told_apart(browser: Any, stored_file: Path) -> None:
    tab = Tab(browser, stored_file)
    rows = zip(*(tab.column(title) for title in ("method", "data", "memory")), strict=True)
    names = list(rows)
    assert len(set(names)) == len(names)
    tab.context.close()


def test_an_interval_needs_three_runs(browser: Any, tmp_path: Path) -> None:
    runs = [
        Finished(Path(f"runs/{method}-{seed}"), result(method, seed))
        for method, count in (("er", 2), ("onpro", 3))
        for seed in range(count)
    ]
    path = tmp_path / "page.html"
    path.write_text(page(found(runs)))
    tab = Tab(browser, path)
    shown = dict(zip(tab.column("method"), tab.column("95\u00a0% interval"), strict=True))
    assert shown["er"] == "n too small"
    assert " to " in shown["onpro"]
    tab.page.get_by_label("95 % interval").check(force=True)
    assert tab.page.locator("#accuracy-charts .band").count() == 1
    assert tab.page.locator("#time-charts .bar").count() == 1
    tab.page.locator("#accuracy-charts svg").hover()
    lines = {line.split()[-1]: line for line in tab.tip().splitlines() if line.strip()}
    assert "95 %" in lines["onpro"]
    assert "95 %" not in lines["er"]
    tab.context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_of_large_matrices_are_apart_and_whole(
    browser: Any, large_file: Path, width: int
) -> None:
    tab = Tab(browser, large_file, width)
    for section in ("#matrices-maps", "#confusion-maps"):
        for number in (1, 2):
            figure = f"{section} figure:nth-child({number})"
            (frame,) = tab.boxes(figure)
            assert frame.right <= width
            rows, columns = (tab.boxes(f"{figure} .tick{kind}") for kind in (".row", ":not(.row)"))
            titles = tab.boxes(f"{figure} .title")
            assert 5 <= len(rows) == len(columns) <= 20
            assert overlapping([*rows, *columns, *titles, *tab.boxes(f"{figure} canvas")]) == []
            assert all(box.is_inside(frame) for box in (*rows, *columns, *titles))
            texts = tab.page.locator(f"{figure} .row.tick").all_inner_texts()
            assert len(set(texts)) == len(texts)
    tab.context.close()


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_labels_of_lines_are_apart_and_inside(browser: Any, large_file: Path, width: int) -> None:
    tab = Tab(browser, large_file, width)
    for section in ("#accuracy-charts", "#forgetting-charts"):
        (frame,) = tab.boxes(f"{section} svg")
        texts = tab.boxes(f"{section} svg text")
        assert frame.right <= width
        assert overlapping(texts) == []
        assert all(text.is_inside(frame) for text in texts)
    tab.context.close()


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_labels_of_points_stand_by_them(browser: Any, tmp_path: Path, width: int) -> None:
    runs = [
        Finished(Path(f"runs/{k}"), result(f"a-method-{k}", train_seconds=100 + 7 * (k % 5)))
        for k in range(14)
    ]
    path = tmp_path / "page.html"
    path.write_text(page(found(runs)))
    tab = Tab(browser, path, width)
    (frame,) = tab.boxes("#time-charts svg")
    labels, dots = tab.boxes("#time-charts .label"), tab.boxes("#time-charts .dot")
    assert len(dots) == 14
    assert overlapping(labels) == []
    assert not any(label.overlaps(dot) for label in labels for dot in dots)
    assert all(label.is_inside(frame) for label in labels)
    marked = tab.boxes("#time-charts g:has(.label) .dot")
    assert len(marked) == len(labels) >= (0 if width < 560 else 4)
    for label, own in zip(labels, marked, strict=True):
        assert label.gap(own) <= min(15, *(label.gap(dot) + 3 for dot in dots))
    named = tab.page.locator("#time-charts .label, #time-charts .legend li").all_text_contents()
    assert sorted(named) == sorted(f"a-method-{k}" for k in range(14))
    tab.context.close()


def test_whatever_has_the_focus_shows_it(tab: Tab) -> None:
    outlined = """() => {
        const focused = document.activeElement;
        const shown = focused.matches(".chip input") ? focused.nextElementSibling : focused;
        return [focused.tagName, getComputedStyle(shown).outlineStyle];
    }"""
    seen = []
    for _ in range(60):
        tab.page.keyboard.press("Tab")
        seen.append(tab.page.evaluate(outlined))
    names = {name for name, style in seen if style == "solid"}
    assert names >= {"A", "INPUT", "BUTTON", "CANVAS", "SUMMARY", "svg"}
    assert {name for name, style in seen if style != "solid"} <= {"BODY"}
