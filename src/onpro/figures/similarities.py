"""Figure of the similarity of online and global prototypes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onpro.experiments.experiment import Experiment
from onpro.figures.style import (
    COLORS,
    DASHES,
    INK,
    LIGHT,
    QUIET,
    Legend,
    Options,
    blank,
    drawable,
    joined,
    names_of,
    plain,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMOOTHED = 20
"""Points of a task that a line shows; more measurements are averaged in windows."""

MOST_BOUNDARIES = 30
"""Lines of task boundaries; more would be grey."""

PANELS = {"old": "old classes", "new": "classes of the current task"}


def prototypes(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Similarity of online and global prototypes over the stream (Fig. 5).

    A line is the mean over the seeds of an experiment, and begins anew with each task.
    """
    known = drawable(experiments, _lacks_prototypes)
    measured = [similarities(one) for one in known]
    names, common = names_of(known)
    spaces = [_logs(one)[0].get("space") for one in known]
    if "projection" in spaces:
        names = [
            f"{name} (features)" if space == "features" else name
            for name, space in zip(names, spaces, strict=True)
        ]
    boundaries = {_boundaries(columns) for columns in measured}
    starts = boundaries.pop() if len(boundaries) == 1 else ()  # else a line would be of some alone
    legend = Legend(names, options)
    figure = blank(options, 0.6 * options.inches + 0.4 + legend.height)
    panels = figure.subplots(2, 1, sharex=True, squeeze=False)[:, 0]
    about = joined("cosine of online and global prototypes", common)
    for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
        plain(axes, options, f"{about}\n{title}" if name == "old" else title)
        handles = [
            _draw(axes, columns, name, number, options) for number, columns in enumerate(measured)
        ]
        for start in starts if len(starts) <= MOST_BOUNDARIES else ():
            axes.axvline(start, color=LIGHT, linewidth=0.8, zorder=0)
        axes.margins(x=0.01)
        axes.locator_params(axis="y", nbins=5)
        axes.set_yticks([tick for tick in axes.get_yticks() if tick <= 1])
    panels[-1].set_xlabel("training step; a line for each task", color=INK, size=options.font)
    panels[-1].spines["bottom"].set_color(QUIET)
    legend.add(figure, handles)
    return figure


Columns = dict[str, NDArray[np.float64]]
"""Steps, tasks and similarities, NaN where there are none."""


def similarities(experiment: Experiment) -> Columns:
    """Return the mean similarities over the runs that measured them at the same steps."""
    logs = _logs(experiment)
    alike = [log for log in logs if log["step"] == logs[0]["step"]]
    columns: Columns = {}
    for name in ("step", "task", "old", "new"):
        values = np.array([log[name] for log in alike], dtype=float)
        known = (~np.isnan(values)).sum(axis=0)
        mean = np.nansum(values, axis=0) / np.maximum(known, 1)
        columns[name] = np.where(known > 0, mean, np.nan)
    return columns


def _logs(experiment: Experiment) -> list[dict[str, Any]]:
    logs = [run.result.get("prototypes") for run in experiment.runs]
    return [log for log in logs if log and log["step"]]


def _lacks_prototypes(experiment: Experiment) -> str:
    if _logs(experiment):
        return ""
    return (
        f"no run of {experiment} has measured its prototypes: train it again with onpro run and "
        "the options --probe prototypes --fresh."
    )


def _boundaries(columns: Columns) -> tuple[float, ...]:
    """Return steps at which a task begins, up to the distance of two measurements."""
    changes = np.flatnonzero(np.diff(columns["task"])) + 1
    return tuple(float(columns["step"][k - 1 : k + 1].mean()) for k in changes)


def _draw(axes: Any, columns: Columns, name: str, number: int, options: Options) -> Any:
    """Draw a line for each task; where it is averaged, single measurements are faint."""
    color = COLORS[number % len(COLORS)]
    style = {"color": color, "linestyle": DASHES[number % len(DASHES)]}
    for task in np.unique(columns["task"]):
        here = (columns["task"] == task) & ~np.isnan(columns[name])
        x, y = columns["step"][here], columns[name][here]
        if not len(x):
            continue
        window = max(1, len(x) // SMOOTHED)
        if window > 1:
            axes.plot(x, y, ".", color=color, markersize=1.5, alpha=0.2, rasterized=True)
        marker = "o" if len(x) == 1 else ""
        axes.plot(
            *(_averaged(values, window) for values in (x, y)),
            linewidth=0.14 * options.font,
            marker=marker,
            markersize=2,
            **style,
        )
    (handle,) = axes.plot([], [], linewidth=0.2 * options.font, **style)
    return handle


def _averaged(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Return means of consecutive windows; the last may be larger."""
    count = max(1, len(values) // window)
    return np.array([part.mean() for part in np.array_split(values, count)])
