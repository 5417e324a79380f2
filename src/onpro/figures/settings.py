"""Figures of a measure against a setting."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onpro.errors import UserError, unknown
from onpro.experiments.experiment import MEASURES, Experiment
from onpro.experiments.grouping import configuration
from onpro.figures.style import (
    COLORS,
    DASHES,
    INK,
    MARKERS,
    Legend,
    Options,
    blank,
    plain,
)
from onpro.runs.config import SHORTCUT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure

Line = dict[Any, Experiment]
"""Experiments by the value of the setting."""


def sweep(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Any measure against any setting (`--x SETTING --measure MEASURE`).

    Experiments that differ only in the setting form a line. Without `--x` it is the setting that
    takes the most values.
    """
    x = options.x or _most_varied(experiments)
    if options.measure not in MEASURES:
        raise unknown("measure", options.measure, MEASURES)
    return _draw(experiments, x, (options.measure,), options)


def replay(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy and training time against the size of the replay batch (Fig. A3)."""
    return _draw(experiments, "replay_batch", ("accuracy", "seconds"), options)


def _draw(
    experiments: Sequence[Experiment], x: str, measures: Sequence[str], options: Options
) -> "Figure":
    lines = _lines(experiments, x)
    legend = Legend(list(lines), options)
    figure = blank(options, 0.5 * options.inches + legend.height)
    panels = figure.subplots(1, len(measures), squeeze=False)
    values = sorted({value for line in lines.values() for value in line}, key=_order)
    for axes, measure in zip(panels[0], measures, strict=True):
        unit = "s" if measure == "seconds" else "%"
        plain(axes, options, f"{measure}, {unit}")
        handles = [
            _draw_line(axes, line, measure, values, number, options)
            for number, line in enumerate(lines.values())
        ]
        axes.set_xticks(range(len(values)), [str(value) for value in values])
        axes.set_ylim(bottom=0)
        axes.set_xlabel(x.replace("_", " "), color=INK, size=options.font)
    legend.add(figure, handles)
    return figure


def _draw_line(
    axes: "Axes", line: Line, measure: str, values: Sequence[Any], number: int, options: Options
) -> "ErrorbarContainer":
    """Draw means with bars of one standard deviation."""
    summaries = [(values.index(value), one.summary(measure)) for value, one in line.items()]
    points = sorted((at, found.mean, found.deviation or 0.0) for at, found in summaries if found)
    at, means, spread = zip(*points, strict=True) if points else ((), (), ())
    return axes.errorbar(
        at,
        means,
        yerr=spread,
        color=COLORS[number % len(COLORS)],
        linestyle=DASHES[number % len(DASHES)],
        marker=MARKERS[number % len(MARKERS)],
        markersize=0.55 * options.font,
        linewidth=0.2 * options.font,
        elinewidth=1,
        capsize=2,
    )


def _lines(experiments: Sequence[Experiment], x: str) -> dict[str, Line]:
    """Return lines by name; raise UserError if no experiment has the setting."""
    lines: dict[str, Line] = {}
    for one in experiments:
        values = _values(one)
        if x not in values:
            continue
        others = [part for part in one.by_hand if not part.startswith(f"{x}=")]
        method = f"{one.method} ({one.recipe})" if one.recipe else one.method
        memory = [] if x == "memory" else [f"M = {one.memory}"]
        name = ", ".join([method, *others, one.data, *memory])
        lines.setdefault(name, {})[_hashable(values[x])] = one
    if not lines:
        known = {name for one in experiments for name in _values(one)}
        raise unknown("setting of these runs", x, known)
    return lines


def _values(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of an experiment, the memory among them."""
    config = configuration(experiment.runs[0])
    settings = config.get("settings")
    stream = {name: config[name] for name in ("tasks", "batch_size", *SHORTCUT) if name in config}
    found = settings if isinstance(settings, dict) else {}
    return {"memory": experiment.memory, **stream, **found}


def _most_varied(experiments: Sequence[Experiment]) -> str:
    values: dict[str, set[Any]] = {}
    for one in experiments:
        for name, value in _values(one).items():
            values.setdefault(name, set()).add(_hashable(value))
    name = max(values, key=lambda name: len(values[name]))
    if len(values[name]) < 2:
        raise UserError("these runs differ in no setting: name runs of a sweep.")
    return name


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _order(value: Any) -> tuple[bool, Any]:
    """Sort numbers before other values."""
    number = isinstance(value, (int, float))
    return (not number, value if number else str(value))
