"""Figure of the share of each class along a stream."""

from collections.abc import Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.figures.style import INK, QUIET, Options, blank, letters, name_rows, short, wrapped
from onpro.streams import ClassIncremental

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 120
"""Most columns of a heat map."""

FEW = 20
"""Up to so many classes are named."""


def stream(streams: Mapping[str, ClassIncremental], options: Options) -> "Figure":
    """Share of each class along a stream, a heat map for each stream."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import PowerNorm

    heights = [min(4.0, 0.9 + 0.12 * shown.num_classes) for shown in streams.values()]
    figure = blank(options, 0.3 + sum(heights))
    panels = figure.subplots(len(streams), squeeze=False, height_ratios=heights)
    maps = [shares(shown) for shown in streams.values()]
    norm = PowerNorm(0.5, 0, max(cells.max() for cells in maps))  # so that small shares are seen
    for axes, cells, (title, shown) in zip(panels[:, 0], maps, streams.items(), strict=True):
        axes.imshow(
            cells,
            cmap="Blues",
            norm=norm,
            aspect="auto",
            interpolation="nearest",
            extent=(0, shown.num_images, shown.num_classes - 0.5, -0.5),
        )
        title = wrapped(title, letters(0.75 * options.inches, options.font))
        axes.set_title(title, loc="left", color=INK, size=options.font, parse_math=False)
        _label_classes(axes, shown, options)
        _mark_evaluations(axes, shown)
    panels[-1, 0].set_xlabel(
        "images seen; dots: evaluations, lines: ends of tasks", color=INK, size=options.font
    )
    scale = figure.colorbar(
        ScalarMappable(norm, "Blues"), ax=panels, shrink=min(1.0, 3 / sum(heights))
    )
    scale.set_label("share of the class, %", color=INK, size=options.font)
    scale.ax.tick_params(labelsize=options.font - 1, colors=INK)
    scale.outline.set_visible(False)
    return figure


def shares(shown: ClassIncremental) -> NDArray[np.float64]:
    """Return the percentage of each class (row) among the images of each part of the stream."""
    labels = np.array(shown.labels_in_order())
    bins = min(BINS, len(labels))
    part = np.arange(len(labels)) * bins // len(labels)
    counts = np.zeros((shown.num_classes, bins))
    np.add.at(counts, (labels, part), 1)
    percent: NDArray[np.float64] = 100 * counts / counts.sum(axis=0)
    return percent


def _label_classes(axes: "Axes", shown: ClassIncremental, options: Options) -> None:
    axes.tick_params(length=0, colors=INK, labelsize=options.font - 1)
    axes.spines[:].set_visible(False)
    if shown.num_classes > FEW:
        axes.set_ylabel("class, in order of arrival", color=INK, size=options.font)
        return
    name_rows(axes, [short(name) for name in shown.classes])


def _mark_evaluations(axes: "Axes", shown: ClassIncremental) -> None:
    at = [shown.images_after(step) for step in shown.evaluation_steps]
    dot = 4.0 if len(at) <= 50 else 1.5
    axes.plot(at, [-0.5] * len(at), "o", color=INK, markersize=dot, clip_on=False)
    if shown.kind.has_tasks:
        for step in accumulate(shown.steps_per_task[:-1]):
            axes.axvline(shown.images_after(step), color=QUIET, linewidth=0.6)
