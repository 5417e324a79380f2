"""The common style of figures."""

import logging
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.experiments.grouping import by_hand_without
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOG = logging.getLogger(__name__)

Width = Literal["column", "page"]

INCHES: dict[Width, float] = {"column": 3.35, "page": 6.9}
"""Widths of a column and of a page of a paper in two columns."""

INK = "#2b2b2b"
QUIET = "#8a8a8a"
LIGHT = "#e6e6e6"
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f6000", "#4d4d4d")
"""Distinct for colour-blind people too (after Okabe and Ito)."""
CLASS_COLORS = (*COLORS, "#882255", "#a6c81e", "#b3a2f0", "#f2a07b")
"""Colours of clouds of points, enough for ten classes; the last four are less distinct."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (6, 2, 1, 2, 1, 2)))
"""Their number has no factor in common with those of markers and colours: 35 lines differ without
colour, and lines of one colour differ in both."""
MOST_LINES, MOST_POINTS = len(MARKERS) * len(DASHES), len(MARKERS) * len(COLORS)
"""Lines and points in one figure that can be told apart, and named below it."""


@dataclass(frozen=True)
class Options:
    """What the user chooses about a figure."""

    width: Width = "page"
    x: str = ""
    """Setting on the horizontal axis, for figures that have a choice."""
    measure: str = "accuracy"
    """Measure on the vertical axis, for figures that have a choice."""
    data_dir: Path | None = None
    """Where data sets are, for figures of images; default: as the run."""
    after: tuple[int, ...] = ()
    """Tasks after which networks are shown, from 1; default: the last."""

    @property
    def inches(self) -> float:
        """Width of the figure."""
        return INCHES[self.width]

    @property
    def font(self) -> float:
        """Size of the text in points."""
        return 7.0 if self.width == "column" else 9.0


def blank(
    options: Options,
    height: float,
    width: float | None = None,
    layout: Literal["constrained", "compressed"] = "constrained",
) -> "Figure":
    """Return an empty figure of the chosen width, or a narrower one; compressed for square axes."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width or options.inches, height), layout=layout)


def plain(
    axes: "Axes", options: Options, title: str = "", *, grid: Literal["x", "y"] = "y"
) -> None:
    """Remove frames and ticks, draw light lines, set fonts, and write the title."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.tick_params(length=0, colors=INK, labelsize=options.font - 1)
    axes.grid(axis=grid, color=LIGHT, linewidth=0.8)
    axes.set_axisbelow(True)
    if title:
        most = letters(0.88 * options.inches, options.font + 1)
        lines = [wrapped(line, most) for line in title.split("\n")]
        axes.set_title(
            "\n".join(lines), loc="left", color=INK, size=options.font + 1, parse_math=False
        )


def line_style(number: int, options: Options) -> dict[str, Any]:
    """Return colour, dashes and marker of a line, for `plot`."""
    return {
        "color": COLORS[number % len(COLORS)],
        "linestyle": DASHES[number % len(DASHES)],
        "linewidth": 0.2 * options.font,
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 0.55 * options.font,
    }


def name_rows(axes: "Axes", names: Sequence[str]) -> None:
    """Name the rows of an axes, from 0."""
    axes.set_yticks(range(len(names)), names, parse_math=False)


def names_of(experiments: Sequence[Experiment], without: str = "") -> tuple[list[str], str]:
    """Return short names of experiments, and what all of them have in common.

    Args:
        experiments: one or more.
        without: A setting that is shown elsewhere.
    """
    parts = [
        [
            one.data,
            *([] if without == "memory" else [f"M = {one.memory}"]),
            *by_hand_without(one, without),
            *([one.detail] if one.detail else []),
        ]
        for one in experiments
    ]
    common = [part for part in parts[0] if all(part in others for others in parts)]
    shown = [[part for part in own if part not in common] for own in parts]
    names = [
        visible(", ".join([one.method_and_recipe, *own]))
        for one, own in zip(experiments, shown, strict=True)
    ]
    return names, visible(", ".join(common))


def joined(*parts: str) -> str:
    """Return the parts that are not empty, separated by commas."""
    return ", ".join(filter(None, parts))


def drawable(
    experiments: Sequence[Experiment], problem: Callable[[Experiment], str]
) -> list[Experiment]:
    """Return the experiments without a problem; warn of others, raise UserError if all have one.

    Args:
        experiments: those that the user has named.
        problem: Returns a sentence, empty if there is no problem.
    """
    problems = [problem(one) for one in experiments]
    if all(problems):
        several = f"none of these {len(problems)} experiments can be drawn: "
        raise UserError(f"{several if len(problems) > 1 else ''}{problems[0]}")
    for said in filter(None, problems):
        LOG.warning("left out: %s", visible(said))
    return [one for one, said in zip(experiments, problems, strict=True) if not said]


class Legend:
    """A legend below the axes, where it covers no data.

    Raise UserError if it has more labels than lines or points can be told apart.

    Args:
        labels: one for each line.
        options: of the figure.
        handle: length of the lines beside the labels, in letters; 1 for points.
        title: text above the labels.
    """

    def __init__(
        self, labels: Sequence[str], options: Options, *, handle: int = 4, title: str = ""
    ) -> None:
        what, limit = ("lines", MOST_LINES) if handle > 1 else ("points", MOST_POINTS)
        if len(labels) > limit:
            raise UserError(
                f"the figure would have {len(labels)} {what}, of which at most {limit} can be told "
                "apart: name fewer runs."
            )
        self._font, self._handle = options.font, handle
        row = letters(options.inches, options.font)
        room = 2 * handle + 4
        longest = max((len(label) for label in labels), default=0) + room
        most = 3 if handle > 1 else 6
        self._columns = max(1, min(most, row // longest, len(labels)))
        self._title = wrapped(title, row)
        self.labels = [wrapped(label, max(20, row - room)) for label in labels]
        lines = sum(label.count("\n") + 1 for label in self.labels)
        rows = -(-lines // self._columns) + (self._title.count("\n") + 1 if title else 0)
        self.height = 0.022 * options.font * (rows + 0.5)
        """Height in inches."""

    def add(self, figure: "Figure", handles: Sequence[Any]) -> None:
        """Draw the legend of some lines."""
        legend = figure.legend(
            handles,
            self.labels,
            loc="outside lower left",
            ncols=self._columns,
            frameon=False,
            labelcolor=INK,
            fontsize=self._font,
            handlelength=self._handle,
            title=self._title or None,
            title_fontsize=self._font,
            alignment="left",
        )
        legend.get_title().set_color(INK)
        for text in (*legend.get_texts(), legend.get_title()):
            text.set_parse_math(False)


def letters(inches: float, size: float) -> int:
    """Return how many letters of so many points fit into a width."""
    return int(inches * 115 / size)


def wrapped(title: str, width: int) -> str:
    """Wrap a title to lines of at most so many letters, without breaking `M = 200` or `2 runs`.

    Names are broken at hyphens only if one of them is longer than a line.
    """
    whole = re.sub(r" ([=±]) ", "\u00a0\\1\u00a0", visible(title))
    whole = re.sub(r"(\d) (runs?)\b", "\\1\u00a0\\2", whole)
    too_long = any(len(word) > width for word in whole.split(" "))
    return textwrap.fill(whole, width, break_on_hyphens=too_long)


def short(name: str, longest: int = 14) -> str:
    """Return the name of a class, cut if it is long."""
    name = visible(name)
    return name if len(name) <= longest else f"{name[: longest - 1]}…"
