"""Figure of what memories hold."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.figures.style import INK, Options, blank, names_of, wrapped
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW = 10
"""Largest number of rows and columns for which cells carry their number."""

NAMED = 20
"""Largest number of classes that are named."""

LONGEST_NAME = 14


def memory(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Number of images of each class in the memory, at each evaluation.

    The mean over the seeds of an experiment; classes in order of arrival.
    """
    contents = [content(one) for one in experiments]
    names, place = names_of(experiments)
    columns = len(names) if len(names) <= 3 else math.ceil(math.sqrt(len(names)))
    rows = math.ceil(len(names) / columns)
    letters = int(options.inches / columns * 110 / options.font)
    titles = [wrapped(name, max(12, letters)) for name in names]
    lines = max(title.count("\n") + 1 for title in titles)
    panel = min(0.8 * options.inches / columns, 2.6)
    height = rows * (panel + 0.02 * options.font * (lines + 2)) + 0.07 * options.font
    figure = blank(options, height)
    panels = figure.subplots(rows, columns, squeeze=False)
    highest = max(1.0, *(cells.max() for cells in contents))
    for axes in panels.flat[len(names) :]:
        axes.set_visible(False)
    for number, (axes, title, cells) in enumerate(zip(panels.flat, titles, contents, strict=False)):
        image = axes.imshow(
            cells.T, cmap="Blues", vmin=0, vmax=highest, aspect="auto", interpolation="nearest"
        )
        axes.set_title(title, loc="left", color=INK, size=options.font, parse_math=False)
        axes.tick_params(length=0, colors=INK, labelsize=options.font - 1)
        axes.spines[:].set_visible(False)
        _label(axes, experiments[number], cells, options, first=number % columns == 0)
        if max(cells.shape) <= FEW:
            _write_numbers(axes, cells.T, highest, min(options.font, 55 * panel / len(cells.T)))
    scale = figure.colorbar(image, ax=panels, location="bottom", shrink=0.6, aspect=40)
    label = ", ".join(filter(None, ["images in the memory", place]))
    scale.set_label(wrapped(label, int(options.inches * 80 / options.font)), size=options.font)
    scale.ax.tick_params(labelsize=options.font - 1, colors=INK, length=0)
    scale.outline.set_visible(False)
    return figure


def content(experiment: Experiment) -> NDArray[np.float64]:
    """Return the mean number of images (evaluations, classes) over the runs that know it."""
    known = [run.result.get("memory_content") or [] for run in experiment.runs]
    whole = [counts for counts in known if counts and all(counts)]
    if not whole:
        raise UserError(
            f"no run of {experiment} has noted what its memory holds, as older versions do not: "
            "train it again with onpro run --fresh."
        )
    alike = [np.array(counts, dtype=float) for counts in whole]
    mean: NDArray[np.float64] = np.mean([c for c in alike if c.shape == alike[0].shape], axis=0)
    return mean


def _label(
    axes: "Axes",
    experiment: Experiment,
    cells: NDArray[np.float64],
    options: Options,
    *,
    first: bool,
) -> None:
    """Label the classes, and the evaluations by the number of images seen."""
    evaluations, classes = cells.shape
    result = experiment.runs[0].result
    if classes <= NAMED:
        orders = {tuple(run.result.get("classes", ())) for run in experiment.runs}
        names = [*next(iter(orders))] if len(orders) == 1 else []
        named = [visible(name) for name in names] or [str(k + 1) for k in range(classes)]
        cut = [n if len(n) <= LONGEST_NAME else f"{n[: LONGEST_NAME - 1]}…" for n in named]
        axes.set_yticks(range(classes), cut if first else [""] * classes)
        for text in axes.get_yticklabels():
            text.set_parse_math(False)
    elif first:
        axes.set_ylabel("class, in order of arrival", color=INK, size=options.font)
    if evaluations == len(result["accuracy"]):
        step = -(-evaluations // FEW)
        ticks = range(step - 1, evaluations, step)
        axes.set_xticks(ticks, [str(k + 1) for k in ticks])
        axes.set_xlabel("after task", color=INK, size=options.font)
    else:
        axes.set_xlabel("evaluation", color=INK, size=options.font)


def _write_numbers(axes: "Axes", cells: NDArray[np.float64], highest: float, size: float) -> None:
    for (row, column), value in np.ndenumerate(cells):
        if value:
            axes.text(
                column,
                row,
                f"{value:.0f}",
                ha="center",
                va="center",
                size=size,
                color="white" if value > 0.55 * highest else INK,
            )
