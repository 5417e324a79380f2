"""Figures of training time and of accuracy against compute."""

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.experiments.grouping import STREAM
from onpro.figures.style import (
    COLORS,
    INK,
    MARKERS,
    QUIET,
    Legend,
    Options,
    blank,
    joined,
    letters,
    name_rows,
    names_of,
    plain,
    wrapped,
)
from onpro.runs.result import is_timed, machine
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXES = {"seconds": "training time, s", "images": "training images through the network"}
"""What the horizontal axis of `compute` can show."""

BENCHMARK = {"stream", *STREAM} - {"batch_size", "image_size", "evaluations"}
"""Options with which a run solves another problem, so that its accuracy cannot be compared."""

SHARED = "#9fc6e2"
"""Colour of runs that shared their device."""


def time(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Training time and images per second of each experiment (Fig. A4).

    Runs that shared their device with others are drawn lighter: their time is not that of a run
    that has the device alone. Experiments on different hardware have panels of their own.
    """
    groups: dict[str, list[Experiment]] = {}
    for one in sorted(experiments, key=_seconds):
        groups.setdefault(_place(one), []).append(one)
    widest = letters(0.4 * options.inches, options.font - 1)
    named = [names_of(members) for members in groups.values()]
    labels = [[wrapped(name, widest) for name in names] for names, _ in named]
    lines = max(label.count("\n") + 1 for names in labels for label in names)
    heights = [lines * len(names) + 5 for names in labels]
    figure = blank(options, 0.022 * options.font * sum(heights))
    parts = figure.subfigures(len(groups), squeeze=False, height_ratios=heights)[:, 0]
    for part, (place, members), (_, common), names in zip(
        parts, groups.items(), named, labels, strict=True
    ):
        shared = [_shared(one) for one in members]
        note = "lighter: shared the device" if any(shared) else ""
        about = wrapped(joined(common, place, note), letters(options.inches, options.font))
        part.suptitle(about, x=0.01, ha="left", color=INK, size=options.font, parse_math=False)
        seconds = [_seconds(one) for one in members]
        speeds = [_images(one) / spent for one, spent in zip(members, seconds, strict=True)]
        panels = part.subplots(1, 2, sharey=True)
        for axes, title, values in zip(panels, ("s", "images/s"), (seconds, speeds), strict=True):
            colors = [SHARED if is_shared else COLORS[0] for is_shared in shared]
            bars = axes.barh(range(len(values)), values, color=colors)
            shown = [f"{value:,.{0 if value >= 10 else 1}f}" for value in values]
            axes.bar_label(bars, shown, padding=2, color=INK, size=options.font - 1)
            plain(axes, options, grid="x")
            axes.set_title(f"training, {title}", loc="left", color=INK, size=options.font)
            axes.margins(x=0.35)
            axes.locator_params(axis="x", nbins=3)
            axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        name_rows(panels[0], names)
        panels[0].set_ylim(len(names) - 0.5, -0.5)
    return figure


def compute(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy against time or images, with the Pareto front (`--x seconds|images`).

    Experiments on different data sets or streams have fronts of their own: their accuracies cannot
    be compared.
    """
    x = options.x or "seconds"
    if x not in AXES:
        raise UserError(f"compute has {' or '.join(AXES)} on its axis, not '{x}'.")
    cost = _seconds if x == "seconds" else _images
    names, common = names_of(experiments)
    points = sorted(
        (cost(one), _accuracy(one), name, _benchmark(one))
        for one, name in zip(experiments, names, strict=True)
    )
    height = max(0.72 * options.inches, 0.01 * options.font * len(points))
    figure = blank(options, height)
    axes = figure.subplots()
    plain(axes, options, joined("average accuracy at the end, %", common))
    fronts: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    for seconds, accuracy, _, benchmark in points:
        front = fronts.setdefault(benchmark, [])
        if not front or accuracy > front[-1][1]:
            front.append((seconds, accuracy))
    for front in fronts.values():
        axes.step(*zip(*front, strict=True), where="post", color=QUIET, linewidth=1, zorder=1)
    handles = [
        axes.plot(
            [seconds],
            [accuracy],
            linestyle="",
            marker=MARKERS[number % len(MARKERS)],
            markersize=0.6 * options.font,
            color=COLORS[number % len(COLORS)],
        )[0]
        for number, (seconds, accuracy, *_) in enumerate(points)
    ]
    axes.margins(x=0.2, y=0.1)
    title = AXES[x]
    if x == "seconds":
        places = {_place(one) for one in experiments}
        title = f"{title}, on {visible(places.pop()) if len(places) == 1 else 'different machines'}"
    if points[-1][0] > 20 * points[0][0]:
        axes.set_xscale("log")
        title = f"{title} (log scale)"
    else:
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    axes.set_xlabel(title, color=INK, size=options.font, parse_math=False)
    labelled = [point[:3] for point in points]
    if not _label_points(figure, axes, labelled, list(fronts.values()), options):
        for label in list(axes.texts):
            label.remove()
        legend = Legend([name for *_, name in labelled], options, handle=1)
        figure.set_figheight(height + legend.height)
        legend.add(figure, handles)
    return figure


DISTANCES = (8, -8, 16, -16, 24, -24, 32, -32, 40, -40)
"""How far above a point its label can be, in points, if there is no place right beside it."""

SIDES = (("left", 1), ("right", -1))
"""Alignments of a label right and left of its point, with their signs."""

PLACES = (
    ("left", 5.0, 0.0),
    ("right", -5.0, 0.0),
    ("center", 0.0, -10.0),
    ("center", 0.0, 10.0),
    *((side, sign * (5 + 0.2 * abs(up)), float(up)) for up in DISTANCES for side, sign in SIDES),
)
"""Places of a label: its alignment, and how far right of and above its point it is, in points. The
first free place is taken."""


def _label_points(
    figure: "Figure",
    axes: "Axes",
    points: Sequence[tuple[float, float, str]],
    fronts: Sequence[Sequence[tuple[float, float]]],
    options: Options,
) -> bool:
    """Write names beside points, inside the axes and off other names, points and the fronts.

    Returns:
        Whether there is room for all.
    """
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # fixes the place of the axes
    frame = axes.get_window_extent()
    half = 0.35 * options.font * figure.dpi / 72
    centres = axes.transData.transform([point[:2] for point in points])
    taken = [Bbox([centre - half, centre + half]) for centre in centres]
    for (x, y), (next_x, next_y) in chain.from_iterable(map(pairwise, fronts)):
        ends = [[(x, y), (next_x, y)], [(next_x, y), (next_x, next_y)]]
        taken += [Bbox(axes.transData.transform(end)) for end in ends]
    for x, y, name in points:
        label = axes.annotate(
            wrapped(name, 24),
            (x, y),
            xytext=(0, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            size=options.font - 1,
            parse_math=False,
        )
        for side, right, up in PLACES:
            label.set(ha=side)
            label.xyann = right, up
            box = label.get_window_extent()
            inside = frame.x0 <= box.x0 and box.x1 <= frame.x1
            inside = inside and frame.y0 <= box.y0 and box.y1 <= frame.y1
            if inside and not any(box.overlaps(other) for other in taken):
                break
        else:
            return False
        taken.append(box)
    return True


def _benchmark(experiment: Experiment) -> tuple[str, ...]:
    """Return what an experiment has to be compared within: its data set and stream."""
    options = (value for value in experiment.by_hand if value.partition("=")[0] in BENCHMARK)
    return experiment.data, *options


def _place(experiment: Experiment) -> str:
    result = experiment.runs[0].result
    return f"{machine(result['hardware'])}, {result['precision']}"


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
    return any(not is_timed(result) or result["shared_by"] > 1 for result in results)
