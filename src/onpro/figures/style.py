"""The common style of figures."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from onpro.experiments.experiment import Experiment
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
DASHES = ("-", "--", "-.", ":")
"""Fewer than markers, so that 28 lines differ in one of the two without colour."""


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


def blank(options: Options, height: float) -> "Figure":
    """Return an empty figure of the chosen width."""
    from matplotlib.figure import Figure

    return Figure(figsize=(options.inches, height), layout="constrained")


def plain(axes: "Axes", options: Options, title: str = "") -> None:
    """Remove frames and ticks, draw light horizontal lines, set fonts, and write the title."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.tick_params(length=0, colors=INK, labelsize=options.font - 1)
    axes.grid(axis="y", color=LIGHT, linewidth=0.8)
    axes.set_axisbelow(True)
    if title:
        letters = int(options.inches * 95 / options.font)
        lines = [wrapped(line, letters) for line in title.split("\n")]
        axes.set_title(
            "\n".join(lines), loc="left", color=INK, size=options.font + 1, parse_math=False
        )


def names_of(experiments: Sequence[Experiment]) -> tuple[list[str], str]:
    """Return short names of experiments, and the data set and memory if all have the same."""
    places = {(one.data, one.memory) for one in experiments}
    if len(places) > 1:
        return [str(one) for one in experiments], ""
    ((data, memory),) = places
    return [one.name for one in experiments], f"{visible(data)}, M = {memory}"


class Legend:
    """A legend below the axes, where it covers no data.

    Args:
        labels: one for each line.
        options: of the figure.
        handle: length of the lines beside the labels, in letters.
        title: text above the labels.
    """

    def __init__(
        self, labels: Sequence[str], options: Options, *, handle: int = 4, title: str = ""
    ) -> None:
        self._font, self._handle = options.font, handle
        letters = int(options.inches * 100 / options.font)
        room = handle + 6
        longest = max((len(label) for label in labels), default=0) + room
        most = 3 if handle > 1 else 6
        self._columns = max(1, min(most, letters // longest, len(labels)))
        self._title = wrapped(title, letters)
        self.labels = [wrapped(label, max(20, letters - room)) for label in labels]
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


def wrapped(title: str, width: int) -> str:
    """Wrap a title to lines of at most so many letters, without breaking `M = 200`."""
    return textwrap.fill(visible(title).replace(" = ", "\u00a0=\u00a0"), width)
