"""Figure of the effect of a shortcut's cues on methods."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onpro.experiments.experiment import Experiment, Measure
from onpro.figures.style import (
    COLORS,
    INK,
    QUIET,
    Options,
    blank,
    drawable,
    letters,
    name_rows,
    names_of,
    plain,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS: Mapping[str, Mapping[Measure, str]] = {
    "accuracy at the end, %": {
        "no_cue": "no cue",
        "true_cue": "true cue",
        "wrong_cue": "wrong cue",
    },
    "shortcut reliance, %": {
        "reliance": "all tasks, at the end",
        "reliance_new": "newest task, after each task",
    },
    "cue-following rate, %": {
        "following": "class of the same task",
        "following_any": "class of any task",
    },
}
"""Titles of panels, their measures, and the names of these in the legend."""

CONTROLS = {"following": "control", "following_any": "control_any"}
"""Measures that have a value without a cue to compare with, drawn as an empty marker."""

MARKERS = ("o", "^", "s")


def shortcut(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy with true, wrong and no cue, reliance on cues and following of them.

    Bars are 95 % intervals of the mean. Empty markers are the same images without a cue.
    """
    cued = drawable(experiments, _lacks_shortcut)
    names, common = names_of(cued)
    stacked = options.width == "column"
    row = 0.032 * options.font
    height = row * (len(cued) + 4) + 0.3
    figure = blank(options, height * (len(PANELS) if stacked else 1) + 0.3)
    shape = (len(PANELS), 1) if stacked else (1, len(PANELS))
    panels = figure.subplots(*shape, squeeze=False, sharey=True).flat
    for axes, (title, measures) in zip(panels, PANELS.items(), strict=True):
        _draw(axes, cued, measures, options)
        plain(axes, options, grid="x")
        axes.set_title(title, loc="left", color=INK, size=options.font)
        name_rows(axes, [wrapped(name, 24) for name in names])
        axes.set_ylim(len(cued) - 0.5, -0.5)
        if "reliance" not in measures:  # shares: intervals may go further
            axes.set_xlim(-3, 103)
        handles, labels = axes.get_legend_handles_labels()
        by_label = dict(sorted(zip(labels, handles, strict=True)))
        axes.legend(
            by_label.values(),
            by_label.keys(),
            loc="upper center",
            bbox_to_anchor=(0.5, -0.12 if stacked else -0.13),
            frameon=False,
            labelcolor=INK,
            fontsize=options.font - 1,
        )
    title = wrapped(common, letters(options.inches, options.font))
    figure.suptitle(title, color=INK, size=options.font, x=0.01, ha="left", parse_math=False)
    return figure


def _lacks_shortcut(experiment: Experiment) -> str:
    if experiment.values("reliance"):
        return ""
    return f"{experiment} has no shortcut: train it with onpro run and the option --shortcut 0.9."


def _draw(
    axes: "Axes", cued: Sequence[Experiment], measures: Mapping[Measure, str], options: Options
) -> None:
    for number, (measure, label) in enumerate(measures.items()):
        color, marker = COLORS[number], MARKERS[number]
        offset = 0.22 * (number - (len(measures) - 1) / 2)
        for at, one in enumerate(cued):
            summary = one.summary(measure)
            if summary is None:
                continue
            style: dict[str, Any] = {
                "markersize": 0.6 * options.font,
                "color": color,
                "marker": marker,
            }
            axes.errorbar(
                summary.mean,
                at + offset,
                xerr=summary.interval or 0.0,
                elinewidth=1.2,
                capsize=2,
                linestyle="",
                label="" if at else label,
                **style,
            )
            control = one.summary(CONTROLS[measure]) if measure in CONTROLS else None
            if control:
                axes.plot(
                    control.mean,
                    at + offset,
                    linestyle="",
                    fillstyle="none",
                    label="" if at else f"{label}, no cue",
                    **style,
                )
    axes.axvline(0, color=QUIET, linewidth=0.8, zorder=0)
