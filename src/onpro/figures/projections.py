"""Figure of the features of test images in two dimensions."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.figures.models import LoadedModel, lacks_model, load_models
from onpro.figures.style import (
    CLASS_COLORS,
    INK,
    Legend,
    Options,
    blank,
    drawable,
    joined,
    letters,
    names_of,
    short,
    wrapped,
)
from onpro.methods.base import EVAL_BATCH

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PER_CLASS = 200
"""Largest number of images of a class."""

MOST_POINTS = 3000
"""Largest number of images, so that t-SNE takes seconds."""

PERPLEXITY = 30.0

FEW = 24
"""Largest number of classes with a colour and marker each; of more, tasks are shades."""

OLD, NEW = ("o", "s"), ("x", "+")
"""Markers of old and new classes; the second for the classes whose colours are taken."""

PROJECTIONS = {"tsne": "t-SNE", "pca": "PCA"}

MOST_COLUMNS = {"column": 2, "page": 4}

LARGEST_PANEL = 3.2
"""Largest side of a panel, in inches."""


def features(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Features of test images (Figs. 3, A2; `--after TASKS`, `--x tsne|pca`).

    The encoder's features of the first 200 test images of each class seen, after the last task or
    those chosen: a row for each task and a column for each experiment, or the other way round for
    many experiments. Classes of the task learned
    last are drawn as crosses, older classes as dots.
    """
    how = options.x or "tsne"
    if how not in PROJECTIONS:
        raise UserError(f"features are projected by {' or '.join(PROJECTIONS)}, not '{how}'.")
    loaded = list(load_models(drawable(experiments, lacks_model), options.data_dir, options.after))
    kept, models = [one for one, _ in loaded], [of for _, of in loaded]
    names, common = names_of(kept)
    grid = _arranged(models, names, MOST_COLUMNS[options.width])
    shown = [model for own in models for model in own]
    longest = max(shown, key=lambda model: model.learned)
    few = all(
        len(model.classes) <= FEW and model.stream.classes == longest.stream.classes
        for model in shown
    )
    about = joined(f"{PROJECTIONS[how]} of features of test images", common)
    about = f"{about}; crosses: classes of the task learned last"
    legend = Legend(_classes(longest) if few else [], options, handle=1, title=about)
    side = min(LARGEST_PANEL, (options.inches - 0.3) / len(grid[0]))
    width = letters(side, options.font)
    lines = [max(len(textwrap.wrap(panel.above, width)) for panel in row) for row in grid]
    height = len(grid) * (side + 0.08) + 0.02 * options.font * sum(lines)
    figure = blank(options, height + legend.height + (0 if few else 0.4))
    panels = figure.subplots(len(grid), len(grid[0]), squeeze=False)
    for axes in panels.flat:
        axes.set_visible(False)
    style = {"color": INK, "size": options.font, "parse_math": False}
    for row, panel_row in zip(panels, grid, strict=True):
        for axes, panel in zip(row, panel_row, strict=False):
            axes.set_visible(True)
            axes.set_xticks([])
            axes.set_yticks([])
            axes.set_box_aspect(1)
            axes.spines[:].set_color("#c0c0c0")
            axes.set_title(wrapped(panel.above, width), loc="left", **style)
            axes.set_ylabel(wrapped(panel.left, width), **style)
            points, labels = _points(panel.model, how)
            _scatter(axes, points, labels, panel.model, few=few, size=_size(side, len(labels)))
    legend.add(figure, [_handle(number) for number in range(len(legend.labels))])
    if not few:
        _shade_of_tasks(figure, panels, longest.learned, options)
    return figure


class Panel(NamedTuple):
    """A cloud of points and the texts beside it."""

    model: LoadedModel
    above: str
    left: str


def _arranged(
    models: Sequence[Sequence[LoadedModel]], names: Sequence[str], most: int
) -> list[list[Panel]]:
    """Return rows of at most so many panels: tasks by experiments, or the other way round."""
    if len(models[0]) == 1:
        flat = [Panel(model, name, "") for (model,), name in zip(models, names, strict=True)]
        return [flat[start : start + most] for start in range(0, len(flat), most)]
    tasks = [f"after task {model.learned}" for model in models[0]]
    cells = [list(row) for row in zip(*models, strict=True)]
    above, left = list(names), tasks
    if len(models) > most:
        cells, above, left = [list(row) for row in models], left, above
    return [
        [
            Panel(model, above[column] if row == 0 else "", left[row] if column == 0 else "")
            for column, model in enumerate(own)
        ]
        for row, own in enumerate(cells)
    ]


def _size(side: float, points: int) -> float:
    """Return the area of a point, smaller in panels with many."""
    return float(np.clip(2500 * side**2 / max(points, 1), 2.0, 14.0))


def _classes(model: LoadedModel) -> list[str]:
    return [short(model.stream.classes[label], 24) for label in model.classes]


def _handle(number: int) -> Any:
    from matplotlib.lines import Line2D

    return Line2D(
        [],
        [],
        linestyle="",
        marker=OLD[number // len(CLASS_COLORS)],
        color=CLASS_COLORS[number % len(CLASS_COLORS)],
        markersize=4,
    )


def _scatter(
    axes: "Axes",
    points: NDArray[np.float64],
    labels: NDArray[np.int64],
    model: LoadedModel,
    *,
    few: bool,
    size: float,
) -> None:
    """Draw the images, those of new classes on top."""
    style: dict[str, Any] = {"s": size, "rasterized": len(labels) > 500}
    for is_new in (False, True):
        chosen = np.isin(labels, sorted(model.newest)) == is_new
        markers = NEW if is_new else OLD
        lines = 0.8 if is_new else 0.0
        if not few:
            task_of = {k: t for t, own in enumerate(model.stream.task_classes) for k in own}
            shades = [task_of[k] / max(1, model.learned - 1) for k in labels[chosen].tolist()]
            axes.scatter(
                points[chosen, 0],
                points[chosen, 1],
                c=shades,
                cmap="viridis_r",
                vmin=0,
                vmax=1,
                marker=markers[0],
                linewidths=lines,
                **style,
            )
            continue
        for number, label in enumerate(model.classes):
            own = chosen & (labels == label)
            axes.scatter(
                points[own, 0],
                points[own, 1],
                color=CLASS_COLORS[number % len(CLASS_COLORS)],
                marker=markers[number // len(CLASS_COLORS)],
                linewidths=lines,
                **style,
            )


def _shade_of_tasks(figure: "Figure", panels: Any, tasks: int, options: Options) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    scale = figure.colorbar(
        ScalarMappable(Normalize(1, max(2, tasks)), "viridis_r"),
        ax=panels,
        location="bottom",
        shrink=0.5,
        aspect=40,
        pad=0.02,
    )
    scale.set_label("task of the class", color=INK, size=options.font)
    scale.ax.tick_params(labelsize=options.font - 1, colors=INK, length=0)
    scale.outline.set_visible(False)


def _points(model: LoadedModel, how: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the positions of some test images of each class learned, and their labels."""
    per_class = max(1, min(PER_CLASS, MOST_POINTS // len(model.classes)))
    splits = [model.stream.test(task).first_per_class(per_class) for task in range(model.learned)]
    labels = torch.cat([split.labels for split in splits]).numpy()
    method = model.method
    parts = [part for split in splits for part in split.images.split(EVAL_BATCH)]
    h = torch.cat([method.eval_features(method.normalise(part)) for part in parts])
    return projected(h.double().numpy(), how), labels


def projected(values: NDArray[np.float64], how: str) -> NDArray[np.float64]:
    """Return features (n, d) in two dimensions; t-SNE of fewer than 5 images is PCA."""
    if how == "pca" or len(values) < 5:
        centred = values - values.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        flat: NDArray[np.float64] = centred @ axes[:2].T
        return np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, (len(values) - 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0)
    placed: NDArray[np.float64] = tsne.fit_transform(values)
    return placed
