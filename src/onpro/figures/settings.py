"""Figures of a measure against a setting."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from onpro.errors import UserError, unknown
from onpro.experiments.experiment import MEASURES, Experiment
from onpro.experiments.grouping import STREAM, stream_settings
from onpro.figures.style import INK, Legend, Options, blank, letters, line_style, names_of, plain
from onpro.runs import RunConfig
from onpro.runs.schema import is_number
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

Line = dict[Any, Experiment]
"""Experiments by the value of the setting."""

MAGNITUDES = 10
"""Least ratio of the largest to the smallest value on a logarithmic scale."""

GAP = 3
"""Least distance of the labels of two ticks, in points."""


def sweep(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Any measure against any setting (`--x SETTING --measure MEASURE`).

    Experiments that differ only in the setting form a line. Without `--x` it is the setting of
    the longest line.
    """
    if options.measure not in MEASURES:
        raise unknown("measure", options.measure, MEASURES)
    x = options.x or _most_varied(experiments)
    return _draw(experiments, x, (options.measure,), options)


def replay(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy and training time against the size of the replay batch (Fig. A3)."""
    return _draw(experiments, "replay_batch", ("accuracy", "seconds"), options)


def _draw(
    experiments: Sequence[Experiment], x: str, measures: Sequence[str], options: Options
) -> "Figure":
    lines, common = _lines(experiments, x)
    if not lines:
        raise UserError(
            f"no two of these experiments differ only in {x}: name runs with several values of it."
        )
    for measure in measures:
        if not any(one.values(measure) for line in lines.values() for one in line.values()):
            raise UserError(f"none of these runs has measured '{measure}'.")
    legend = Legend(list(lines), options, title=common)
    figure = blank(options, 0.5 * options.inches + legend.height)
    panels = figure.subplots(1, len(measures), squeeze=False)
    values = sorted({value for line in lines.values() for value in line}, key=_order)
    scale, size = Scale.of(values), options.font - 1
    labels = scale.labels()
    room = letters(0.8 * options.inches / len(measures), size)
    turned = not scale.is_numeric and sum(len(label) + 2 for label in labels) > room
    if turned:
        figure.set_figheight(figure.get_figheight() + max(map(len, labels)) / letters(1, size))
    for axes, measure in zip(panels[0], measures, strict=True):
        title = "training time, s" if measure == "seconds" else f"{measure.replace('_', ' ')}, %"
        plain(axes, options, title)
        handles = [
            _draw_line(axes, line, measure, scale, number, options)
            for number, line in enumerate(lines.values())
        ]
        if scale.is_log:
            axes.set_xscale("log")
            axes.minorticks_off()
        axes.set_xticks(
            list(scale.places.values()), labels, rotation=90 if turned else 0, parse_math=False
        )
        axes.margins(y=0.08)
        if axes.dataLim.ymin >= 0:
            axes.set_ylim(bottom=0)
        title = x.replace("_", " ") + (" (log scale)" if scale.is_log else "")
        axes.set_xlabel(title, color=INK, size=options.font)
    legend.add(figure, handles)
    for axes in panels[0]:
        _keep_apart(figure, axes)
    return figure


@dataclass(frozen=True)
class Scale:
    """Where the values of a setting are on the horizontal axis."""

    places: Mapping[Any, float]
    is_numeric: bool = False
    """Whether the values are numbers, which are to scale; others are at equal distances."""
    is_log: bool = False

    @classmethod
    def of(cls, values: Sequence[Any]) -> "Scale":
        """Return the scale of values in ascending order.

        It is logarithmic if that keeps numbers of different magnitude further apart.
        """
        if not all(map(is_number, values)):
            return cls({value: float(at) for at, value in enumerate(values)})
        places = {value: float(value) for value in values}
        is_log = 0 < MAGNITUDES * values[0] <= values[-1] and (
            _smallest_gap([math.log(value) for value in values]) > _smallest_gap(values)
        )
        return cls(places, True, is_log)

    def labels(self) -> list[str]:
        """Return a label for each value."""
        return [
            f"{value:.10g}" if is_number(value) else visible(str(value)) for value in self.places
        ]


def _smallest_gap(places: Sequence[float]) -> float:
    """Return the smallest distance of neighbours as a share of the range."""
    return min(b - a for a, b in pairwise(places)) / (places[-1] - places[0])


def _keep_apart(figure: "Figure", axes: "Axes") -> None:
    """Hide labels of ticks that overlap others, but neither the first nor the last."""
    figure.draw_without_rendering()
    ticks = axes.get_xticklabels()
    kept: list[Bbox] = []
    for tick in (ticks[0], ticks[-1], *ticks[1:-1]):
        box = tick.get_window_extent().padded(GAP * figure.dpi / 144)
        if any(box.overlaps(other) for other in kept):
            tick.set_visible(False)
        else:
            kept.append(box)


def _draw_line(
    axes: "Axes", line: Line, measure: str, scale: Scale, number: int, options: Options
) -> "ErrorbarContainer":
    """Draw means with bars of one standard deviation."""
    summaries = [(scale.places[value], one.summary(measure)) for value, one in line.items()]
    points = sorted((at, found.mean, found.deviation or 0.0) for at, found in summaries if found)
    at, means, spread = zip(*points, strict=True) if points else ((), (), ())
    style = line_style(number, options)
    return axes.errorbar(at, means, yerr=spread, elinewidth=1, capsize=2, **style)


def _lines(experiments: Sequence[Experiment], x: str) -> tuple[dict[str, Line], str]:
    """Return lines of two points or more by name, and what all of them have in common.

    Raise UserError if no experiment has the setting.
    """
    having = [one for one in experiments if x in _values(one)]
    if not having:
        known = {name for one in experiments for name in _values(one)}
        raise unknown("setting of these runs", x, known)
    lines, common = _grouped(having, x)
    shown = [one for line in lines.values() if len(line) > 1 for one in line.values()]
    if shown and len(shown) < len(having):  # shorter names do
        lines, common = _grouped(shown, x)
    return (lines if shown else {}), common


def _grouped(experiments: Sequence[Experiment], x: str) -> tuple[dict[str, Line], str]:
    names, common = names_of(experiments, without=x)
    lines: dict[str, Line] = {}
    for name, one in zip(names, experiments, strict=True):
        lines.setdefault(name, {})[_values(one)[x]] = one
    return lines, common


def _values(experiment: Experiment) -> dict[str, Any]:
    """Return memory, stream, settings of its kind and of the method of an experiment by name."""
    config = experiment.runs[0].configuration
    settings = config.get("settings")
    usual = {field.name: field.default for field in fields(RunConfig) if field.name in STREAM}
    stream = {name: config.get(name, value) for name, value in usual.items()}
    stream["tasks"] = stream["tasks"] or len(experiment.runs[0].result["accuracy"])
    own = settings if isinstance(settings, dict) else {}
    values = {"memory": experiment.memory, **stream, **stream_settings(config), **own}
    return {str(name): _hashable(value) for name, value in values.items()}


def _most_varied(experiments: Sequence[Experiment]) -> str:
    """Return the setting with the longest line."""
    values: dict[str, set[Any]] = {}
    for one in experiments:
        for name, value in _values(one).items():
            values.setdefault(name, set()).add(value)
    varied = [name for name, taken in values.items() if len(taken) > 1]
    found = {name: _lines(experiments, name)[0].values() for name in varied}
    length = {name: max(map(len, lines)) for name, lines in found.items() if lines}
    if not length:
        raise UserError(
            "no two of these experiments differ in one setting only: name runs of a sweep."
        )
    return max(length, key=length.__getitem__)


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, (list, dict)) else value


def _order(value: Any) -> tuple[bool, Any]:
    """Sort numbers before other values."""
    number = is_number(value)
    return (not number, value if number else str(value))
