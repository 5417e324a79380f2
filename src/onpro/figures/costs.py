"""Figures of training time and of accuracy against compute."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.figures.style import (
    COLORS,
    INK,
    LIGHT,
    MARKERS,
    QUIET,
    Options,
    blank,
    names_of,
    plain,
    wrapped,
)
from onpro.runs.result import machine
from onpro.text import visible, written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.transforms import Bbox

AXES = {"seconds": "training time, s", "images": "training images through the network"}
"""What the horizontal axis of `compute` can show."""


def time(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Training time and images per second of each experiment (Fig. A4).

    Runs that shared their device with others are drawn lighter: their time is not that of a run
    that has the device alone. Experiments on different hardware have panels of their own.
    """
    groups: dict[str, list[Experiment]] = {}
    for one in experiments:
        result = one.runs[0].result
        place = f"{machine(result['hardware'])}, {result['precision']}"
        groups.setdefault(place, []).append(one)
    rows = [len(members) for members in groups.values()]
    heights = [count + 2 for count in rows]
    figure = blank(options, 0.03 * options.font * sum(heights))
    panels = figure.subplots(len(groups), squeeze=False, height_ratios=heights)
    for axes, (place, members) in zip(panels[:, 0], groups.items(), strict=True):
        ordered = sorted(members, key=_seconds, reverse=True)
        names, where = names_of(ordered)
        shared = [_shared(one) for one in ordered]
        colors = ["#9fc6e2" if is_shared else COLORS[0] for is_shared in shared]
        bars = axes.barh(range(len(ordered)), [_seconds(one) for one in ordered], color=colors)
        axes.bar_label(
            bars,
            [
                f" {written(_seconds(one), '.0f')} s, {_images(one) / _seconds(one):,.0f} images/s"
                f"{', shared' if is_shared else ''}"
                for one, is_shared in zip(ordered, shared, strict=True)
            ],
            color=INK,
            size=options.font - 1,
        )
        axes.set_yticks(range(len(ordered)), [wrapped(name, 44) for name in names])
        for text in axes.get_yticklabels():
            text.set_parse_math(False)
        plain(axes, options, ", ".join(filter(None, ["training time, s", where, visible(place)])))
        axes.grid(axis="x", color=LIGHT, linewidth=0.8)
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.35)
    return figure


def compute(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy against training time or images, with the Pareto front (`--x seconds|images`)."""
    x = options.x or "seconds"
    if x not in AXES:
        raise UserError(f"compute has {' or '.join(AXES)} on its axis, not '{x}'.")
    cost = _seconds if x == "seconds" else _images
    names, place = names_of(experiments)
    points = sorted(
        (cost(one), _accuracy(one), name) for one, name in zip(experiments, names, strict=True)
    )
    figure = blank(options, 0.72 * options.inches)
    axes = figure.subplots()
    plain(axes, options, ", ".join(filter(None, ["average accuracy at the end, %", place])))
    front, highest = [], -1.0
    for seconds, accuracy, _ in points:
        if accuracy > highest:
            front.append((seconds, accuracy))
            highest = accuracy
    axes.step(*zip(*front, strict=True), where="post", color=QUIET, linewidth=1, zorder=1)
    for number, (seconds, accuracy, _) in enumerate(points):
        axes.plot(
            [seconds],
            [accuracy],
            linestyle="",
            marker=MARKERS[number % len(MARKERS)],
            markersize=0.7 * options.font,
            color=COLORS[number % len(COLORS)],
        )
    axes.margins(x=0.2, y=0.1)
    if points[-1][0] > 20 * points[0][0]:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel(f"{AXES[x]} (log scale)", color=INK, size=options.font)
    else:
        axes.set_xlim(left=0)
        axes.set_xlabel(AXES[x], color=INK, size=options.font)
    _label_points(figure, axes, points, options)
    return figure


OFFSETS = tuple((side, up) for up in (0, 11, -11, 22, -22) for side in (6, -6))
"""Where the label of a point can be, in points from it; the first free place is taken."""


def _label_points(
    figure: "Figure", axes: "Axes", points: Sequence[tuple[float, float, str]], options: Options
) -> None:
    """Write the name of each point beside it, without overlap where possible."""
    figure.draw_without_rendering()  # fixes the place of the axes
    taken: list[Bbox] = []
    for x, y, name in points:
        for right, up in OFFSETS:
            label = axes.annotate(
                wrapped(name, 30),
                (x, y),
                xytext=(right, up),
                textcoords="offset points",
                ha="left" if right > 0 else "right" if right < 0 else "center",
                va="center",
                color=INK,
                size=options.font - 1,
                parse_math=False,
                bbox={"pad": 0.5, "color": "white", "alpha": 0.8},
            )
            box = label.get_window_extent()
            if not any(box.overlaps(other) for other in taken) or (right, up) == OFFSETS[-1]:
                taken.append(box)
                break
            label.remove()


def _seconds(experiment: Experiment) -> float:
    summary = experiment.summary("seconds")
    return max(summary.mean, 1e-3) if summary else 1e-3


def _accuracy(experiment: Experiment) -> float:
    summary = experiment.summary("accuracy")
    return summary.mean if summary else 0.0


def _images(experiment: Experiment) -> float:
    seen = [float(run.result["images_seen"]) for run in experiment.runs]
    return max(1.0, sum(seen) / len(seen))


def _shared(experiment: Experiment) -> bool:
    results = [run.result for run in experiment.runs]
    return any(r.get("shared_by", 2) > 1 or (r.get("gpu_processes") or 1) > 1 for r in results)
