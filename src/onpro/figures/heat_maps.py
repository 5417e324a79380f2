"""Heat maps of several experiments in a grid, with one colour scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onpro.figures.style import INK, Options, blank, letters, short, wrapped
from onpro.text import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure

NAMED = 20
"""Largest number of classes that are named."""

LARGEST_PANEL = 2.6
"""Largest width of a heat map, in inches."""

SMALLEST_NUMBER = 4.5
"""Smallest size of the numbers in cells, in points; where there is less room there are none."""

MOST_COLUMNS = {"column": 3, "page": 5}


@dataclass(frozen=True)
class HeatMap:
    """Values in cells, NaN where there is none."""

    title: str
    cells: NDArray[np.float64]
    rows: Sequence[str]
    """Labels of the rows from above."""
    columns: Sequence[str]


def heat_maps(
    maps: Sequence[HeatMap],
    axis_titles: tuple[str, str],
    scale_title: str,
    norm: "Normalize",
    options: Options,
) -> "Figure":
    """Draw heat maps with numbers in their cells, if there is room; equal axes have labels once.

    Args:
        maps: one for each experiment.
        axis_titles: of the columns and of the rows.
        scale_title: what the colours mean.
        norm: the colour scale.
        options: of the figure.
    """
    from matplotlib.cm import ScalarMappable

    columns = len(maps) if len(maps) <= 3 else math.ceil(math.sqrt(len(maps)))
    columns = min(columns, MOST_COLUMNS[options.width])
    rows = math.ceil(len(maps) / columns)
    same = len({(*one.rows, None, *one.columns) for one in maps}) == 1
    small = options.font - 1
    beside = 0.02 * options.font + max(len(label) for one in maps for label in one.rows) / letters(
        1, small
    )
    own = 0.08 + (0 if same else beside)
    panel = (options.inches - (beside if same else 0)) / columns - own
    panel = max(0.2, min(panel, LARGEST_PANEL))
    titles = []
    for number, one in enumerate(maps):  # a title may reach to the next heat map, if there is one
        is_last = (number + 1) % columns == 0
        room = letters(panel if is_last else panel + own - 0.08, options.font)
        titles.append("\n".join(wrapped(line, room) for line in one.title.split("\n")))
    axis_title = wrapped(axis_titles[0], letters(panel, options.font))
    below = 0.02 * options.font * (axis_title.count("\n") + 1)
    below += max(_label_height(one.columns, panel, small) for one in maps)
    height = rows * (panel + 0.02 * options.font * max(title.count("\n") + 1 for title in titles))
    height += below * (1 + (len(maps) % columns > 0) if same else rows) + 0.09 * options.font
    width = columns * (panel + own) + (beside if same else 0)
    figure = blank(options, height, max(width, 0.6 * options.inches), "compressed")
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[len(maps) :]:
        axes.set_visible(False)
    for number, (axes, title, one) in enumerate(zip(panels.flat, titles, maps, strict=False)):
        axes.imshow(one.cells, cmap="Blues", norm=norm, aspect="auto", interpolation="nearest")
        axes.set_box_aspect(1)
        axes.set_title(title, loc="left", color=INK, size=options.font, parse_math=False)
        axes.tick_params(length=0, colors=INK, labelsize=small)
        axes.spines[:].set_visible(False)
        _label(axes, one, panel, small)
        is_lowest, is_first = number + columns >= len(maps), number % columns == 0
        axes.tick_params(labelbottom=is_lowest or not same, labelleft=is_first or not same)
        if is_lowest or not same:
            axes.set_xlabel(axis_title, color=INK, size=options.font)
        if is_first or not same:
            axes.set_ylabel(axis_titles[1], color=INK, size=options.font)
        _write_numbers(axes, one.cells, norm, panel, options)
    scale = figure.colorbar(
        ScalarMappable(norm, "Blues"), ax=panels, location="bottom", shrink=0.6, aspect=40
    )
    scale_title = wrapped(scale_title, letters(width, options.font))
    scale.set_label(scale_title, color=INK, size=options.font, parse_math=False)
    scale.ax.tick_params(labelsize=small, colors=INK, length=0)
    scale.outline.set_visible(False)
    return figure


def class_labels(names: Sequence[str], group: int) -> list[str]:
    """Return the names of classes; of many, the numbers of the last ones of their groups."""
    if group == 1 and len(names) <= NAMED:
        return [short(name) for name in names]
    return numbers(len(names), group)


def numbers(count: int, group: int) -> list[str]:
    """Return numbers from 1; of groups of neighbours those of the last ones."""
    return [str((k + 1) * group) for k in range(count)]


def _is_upright(labels: Sequence[str]) -> bool:
    return max(map(len, labels)) > 3 and not all(label[0].isdigit() for label in labels)


def _label_height(labels: Sequence[str], panel: float, size: float) -> float:
    return max(map(len, labels)) / letters(1, size) if _is_upright(labels) else 0.018 * size


def _label(axes: "Axes", one: HeatMap, panel: float, size: float) -> None:
    """Label rows and columns, of many as many as there is room for."""
    room = 72 * panel / (1.2 * size)
    axes.set_yticks(*_some(one.rows, room), parse_math=False)
    upright = _is_upright(one.columns)
    if not upright:
        room = letters(panel, size) / (max(map(len, one.columns)) + 1.5)
    turned: dict[str, Any] = {"rotation": 90} if upright else {}
    axes.set_xticks(*_some(one.columns, room), parse_math=False, **turned)


def _some(labels: Sequence[str], room: float) -> tuple[list[int], list[str]]:
    """Return positions and labels at equal distances, the last of each group."""
    step = math.ceil(len(labels) / max(1.0, room))
    round_steps = (digit * 10**k for k in range(9) for digit in (1, 2, 5))
    step = next(round_step for round_step in round_steps if round_step >= step)
    shown = list(range(step - 1, len(labels), step)) or [len(labels) - 1]
    return shown, [labels[k] for k in shown]


def _write_numbers(
    axes: "Axes", cells: NDArray[np.float64], norm: "Normalize", panel: float, options: Options
) -> None:
    rows, columns = cells.shape
    size = min(options.font, 72 * panel / columns / 2.2, 72 * panel / rows / 1.3)
    if size < SMALLEST_NUMBER:
        return
    for (row, column), value in np.ndenumerate(cells):
        if not np.isnan(value):
            axes.text(
                column,
                row,
                written(float(value), ".0f"),
                ha="center",
                va="center",
                size=size,
                color="white" if norm(value) > 0.55 else INK,
            )
