"""Figure of measured values beside the paper's."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from onpro.errors import UserError, unknown
from onpro.experiments.experiment import MEASURES, Experiment
from onpro.experiments.tables import paper_name
from onpro.figures.style import (
    COLORS,
    INK,
    Options,
    blank,
    joined,
    letters,
    name_rows,
    plain,
    wrapped,
)
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_COLUMNS = {"column": 3, "page": 5}


def paper(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy, or another measure, beside the paper's values (`--measure`).

    Dots are means of the runs, of three or more with their 95 % interval; diamonds are the paper's
    means. Each data set and memory has a panel.
    """
    measure = options.measure
    if measure not in MEASURES:
        raise unknown("measure", measure, MEASURES)
    known = [one for one in experiments if measure in one.paper and one.values(measure)]
    if not known:
        raise UserError(f"the paper has no {measure} of any of these runs.")
    places = sorted({(one.data, one.memory) for one in known})
    values = {_name(one): one.paper[measure][0] for one in known}
    names = {_title(one): _name(one) for one in known}
    rows = sorted(names, key=lambda title: values[names[title]])
    columns = min(len(places), MOST_COLUMNS[options.width])
    bands = math.ceil(len(places) / columns)
    figure = blank(options, 0.024 * options.font * (bands * (len(rows) + 4) + 1))
    panels = figure.subplots(bands, columns, sharey=True, sharex=True, squeeze=False)
    for axes in panels.flat[len(places) :]:
        axes.set_visible(False)
    for axes, (data, memory) in zip(panels.flat, places, strict=False):
        for one in known:
            if (one.data, one.memory) != (data, memory):
                continue
            row, summary = rows.index(_title(one)), one.summary(measure)
            if summary is None:
                continue
            size = 0.55 * options.font
            ours = axes.errorbar(
                [summary.mean],
                [row],
                xerr=[summary.interval or 0.0],
                fmt="o",
                color=COLORS[0],
                markersize=size,
                elinewidth=1.5,
                zorder=3,
            )
            (theirs,) = axes.plot(
                [one.paper[measure][0]],
                [row],
                linestyle="",
                marker="D",
                markersize=size,
                markerfacecolor="white",
                markeredgecolor=COLORS[1],
                markeredgewidth=1.3,
                zorder=2,
            )
        plain(axes, options)
        title = wrapped(
            f"{data}, M = {memory}", max(14, letters(0.7 * options.inches / columns, options.font))
        )
        axes.set_title(title, loc="left", color=INK, size=options.font, parse_math=False)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        name_rows(axes, [wrapped(row, 30) for row in rows])
        axes.set_xlabel(f"{measure}, %", color=INK, size=options.font)
        axes.tick_params(labelbottom=True)
    panels[0, 0].set_xlim(left=0)
    figure.legend(
        [ours, theirs],
        ["measured, with the 95 % interval of three or more runs", "paper"],
        loc="outside lower left",
        ncols=2,
        frameon=False,
        labelcolor=INK,
        fontsize=options.font - 1,
    )
    return figure


def _name(experiment: Experiment) -> str:
    named = paper_name(experiment.method, experiment.recipe)
    return visible(named or experiment.method_and_recipe)


def _title(experiment: Experiment) -> str:
    """Return the name, with what tells experiments of that name apart, such as the precision."""
    return joined(_name(experiment), visible(experiment.detail))
