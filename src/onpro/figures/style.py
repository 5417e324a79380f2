"""How figures look."""

import textwrap
from typing import TYPE_CHECKING

from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK = "#2b2b2b"
QUIET = "#8a8a8a"
COLORS = ("#2563a6", "#d1662b", "#3f8f5b", "#a0457e", "#7a6a2f", "#5b5fc7", "#b23a48", "#4a8c96")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":")
"""Of unequal numbers, so that 28 lines differ in one of the two where there is no colour."""


def plain(axes: "Axes") -> None:
    """Leave only what carries data: no frame, light lines."""
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(QUIET)
    axes.tick_params(length=0, colors=INK)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def wrapped(title: str, width: int) -> str:
    """A title in lines of at most so many letters, M = 200 in one of them."""
    return textwrap.fill(visible(title).replace(" = ", "\u00a0=\u00a0"), width)
