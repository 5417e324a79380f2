"""A number is rounded the same way wherever it is shown: once, halves away from zero."""

import json
import math
import random
import shutil
import subprocess
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from importlib.resources import files
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onpro.cli.live import cells
from onpro.cli.summary import print_runs
from onpro.experiments.grouping import found
from onpro.experiments.matrices import cut
from onpro.figures.curves import accuracy
from onpro.figures.matrices import matrix
from onpro.figures.style import Options
from onpro.reports import results
from onpro.reports.html import content
from onpro.runs import Finished
from onpro.runs.status import RunProgress
from onpro.text import written
from tests.reports.made_up import result

NODE = shutil.which("node")
PERCENT = st.one_of(
    st.floats(0, 100),
    st.integers(0, 10_000).map(lambda hundredths: hundredths / 100),
    st.integers(0, 400).map(lambda quarters: quarters / 4),
)


@given(st.floats(-1e15, 1e15) | PERCENT, st.integers(0, 4))
def test_the_nearest_is_written_and_of_two_the_farther_from_zero(value: float, digits: int) -> None:
    text = written(value, f".{digits}f")
    error = abs(Fraction(text)) - abs(Fraction(repr(round(value, digits + 6))))
    half = Fraction(1, 2 * 10**digits)
    assert -half < error <= half
    assert not text.startswith("-") or Fraction(text) < 0
    assert written(value, f"+.{digits}f").lstrip("+") == text


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=15), st.integers(1, 4))
def test_a_mean_is_written_as_if_it_had_been_computed_exactly(
    hundredths: list[int], digits: int
) -> None:
    exact = Fraction(sum(hundredths), 100 * len(hundredths))
    least = math.floor(exact * 10**digits + Fraction(1, 2))
    mean = sum(value / 100 for value in hundredths) / len(hundredths)
    assert written(mean, f".{digits}f") == written(least / 10**digits, f".{digits}f")


@given(PERCENT)
def test_what_the_page_gets_of_a_cell_rounds_as_the_cell_does(value: float) -> None:
    sent = float(json.loads(json.dumps(cut(value))))
    assert len(repr(sent)) <= 5
    for spec in (".0f", ".1f"):
        assert written(sent, spec) == written(value, spec)


def run(accuracy_of_all: float) -> Finished:
    made = result(tasks=1, classes=2, accuracy=[[accuracy_of_all]])
    return Finished(Path("a-1"), made | {"average_accuracy": accuracy_of_all})


def drawn(figure: object) -> list[str]:
    """All texts of a figure."""
    from matplotlib.text import Text

    assert hasattr(figure, "findobj")
    return [text.get_text() for text in figure.findobj(Text)]


@pytest.mark.parametrize(
    "value", [4.5, 25.848, 0.25, 0.0, 64.55, 47.349999999999994, 99.96, 0.44, 4.4996]
)
def test_all_formats_agree(value: float) -> None:
    one, whole = (
        str(Decimal(str(round(value, 9))).quantize(Decimal(unit), ROUND_HALF_UP))
        for unit in ("0.1", "1")
    )
    runs = [run(value)]
    said = StringIO()
    print_runs(runs, said)
    assert f" {one} " in said.getvalue()
    experiments = found(runs)
    assert f"| {one} |" in results(experiments, "markdown")
    assert f"{{{one}}}" in results(experiments, "latex")
    assert any(f": {one} (" in text for text in drawn(accuracy(experiments, Options())))
    assert whole in drawn(matrix(experiments, Options()))
    (experiment,) = content(experiments)["experiments"]
    assert experiment["accuracy"][0] == value == experiment["curve"][0][0]
    ((cell,),) = experiment["matrix"]["rows"]
    assert written(cell, ".0f") == whole
    assert cells(RunProgress(1, 0, 1.0, 1.0, value, None, None), "running")[1] == f"{one} %"


def test_an_accuracy_of_zero_is_a_number() -> None:
    runs = found([run(0.0)])
    assert "| 0.0 |" in results(runs, "markdown")
    assert "0" in drawn(matrix(runs, Options()))
    assert content(runs)["experiments"][0]["matrix"]["rows"] == [[0]]


def javascript(expression: str) -> object:
    """The value of an expression in the page's script."""
    assets = files("onpro.reports") / "assets"
    script = "".join((assets / f"{name}.js").read_text() for name in ("dom", "heatmap"))
    program = f"const FONT = '';{script}\nconsole.log(JSON.stringify({expression}))"
    node = [NODE or "node", "-e", program]
    answer = subprocess.run(node, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


@pytest.mark.skipif(NODE is None, reason="there is no node on the PATH")
def test_the_page_rounds_as_the_tables_do() -> None:
    draw = random.Random(0)
    values = [0.0, -0.04, 0.04, 0.05, -0.05, 4.5, -4.5, 0.25, 25.848, 1.005, 99.96]
    values += [draw.randrange(10_000) / 100 for _ in range(500)]
    values += [draw.uniform(-100, 100) for _ in range(500)]
    values += [math.nextafter(value, 0) for value in values[:500]]
    for digits in (0, 1, 2):
        said = javascript(f"{json.dumps(values)}.map((value) => number(value, {digits}))")
        assert said == [written(value, f".{digits}f").replace("-", "−") for value in values]


DRAW = """(() => {
  const texts = [];
  const pen = new Proxy({}, {
    get: (_, name) => name === "fillText" ? (text) => texts.push(text) : () => null,
    set: () => true,
  });
  const style = { getPropertyValue: () => "#000000" };
  Object.assign(globalThis, {
    document: {}, getComputedStyle: () => style, devicePixelRatio: 1,
  });
  const rows = [[0], [0.04, 4.5]];
  paint({ getContext: () => pen }, rows, { side: 88, cell: 44, gap: 1, scale: LINEAR });
  return texts;
})()"""


@pytest.mark.skipif(NODE is None, reason="there is no node on the PATH")
def test_a_measured_zero_is_written_in_its_cell() -> None:
    texts = javascript(DRAW)
    assert isinstance(texts, list)
    assert texts == ["0", "0", "5"]
