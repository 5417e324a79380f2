"""Figure of the features of test images in two dimensions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.figures.models import KeptModel, load_models
from onpro.figures.style import CLASS_COLORS, INK, QUIET, Legend, Options, blank, names_of, wrapped
from onpro.methods.base import EVAL_BATCH
from onpro.text import visible

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

MOST_COLUMNS = 4


def features(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Features of test images, by t-SNE or PCA (Figs. 3, A2; `--after TASKS`, `--x tsne|pca`).

    The encoder's features of the first 200 test images of each class seen, after the last task or
    those chosen: a row for each task, a column for each experiment. Classes of the task learned
    last are drawn as crosses, older classes as dots.
    """
    how = options.x or "tsne"
    if how not in PROJECTIONS:
        raise UserError(f"features are projected by {' or '.join(PROJECTIONS)}, not '{how}'.")
    models = list(load_models(experiments, options.data_dir, options.after))
    names, place = names_of(experiments)
    names = [wrapped(name, max(12, _letters(len(models), options))) for name in names]
    if len(models[0]) > 1:  # a row for each task
        shown = [list(row) for row in zip(*models, strict=True)]
        titles = [names, *[[""] * len(names)] * (len(shown) - 1)]
    else:
        flat = [model for (model,) in models]
        starts = range(0, len(flat), MOST_COLUMNS)
        shown = [flat[start : start + MOST_COLUMNS] for start in starts]
        titles = [names[start : start + MOST_COLUMNS] for start in starts]
    columns = len(shown[0])
    longest = max(models[0], key=lambda model: model.learned)
    few = all(
        len(model.classes) <= FEW and model.stream.classes == longest.stream.classes
        for row in shown
        for model in row
    )
    about = ", ".join(filter(None, [f"{PROJECTIONS[how]} of features of test images", place]))
    title = f"{about}; crosses: classes of the task learned last"
    legend = Legend(_classes(longest) if few else [], options, handle=1, title=title)
    lines = max(text.count("\n") + 1 for text in names)
    side = (options.inches - 0.3) / columns
    height = len(shown) * (side + 0.08) + 0.02 * options.font * lines * sum(map(any, titles))
    figure = blank(options, height + legend.height + (0 if few else 0.4))
    panels = figure.subplots(len(shown), columns, squeeze=False)
    for axes in panels.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_box_aspect(1)
        axes.spines[:].set_color("#c0c0c0")
    for row, model_row, title_row in zip(panels, shown, titles, strict=True):
        for axes in row[len(model_row) :]:
            axes.set_visible(False)
        for axes, model, name in zip(row, model_row, title_row, strict=False):
            points, labels = _points(model, how)
            _scatter(axes, points, labels, model, few=few, size=_size(side, len(labels)))
            if name:
                axes.set_title(name, loc="left", color=INK, size=options.font, parse_math=False)
        if len(models[0]) > 1:
            after = f"after task {model_row[0].learned}"
            row[0].set_ylabel(after, color=INK, size=options.font)
    legend.add(figure, [_handle(number) for number in range(len(legend.labels))])
    if not few:
        _shade_of_tasks(figure, panels, max(model.learned for row in shown for model in row))
    return figure


def _letters(experiments: int, options: Options) -> int:
    return int(options.inches / min(experiments, MOST_COLUMNS) * 110 / options.font)


def _size(side: float, points: int) -> float:
    """Return the area of a point, smaller in panels with many."""
    return float(np.clip(2500 * side**2 / max(points, 1), 2.0, 14.0))


def _classes(model: KeptModel) -> list[str]:
    return [visible(model.stream.classes[label])[:24] for label in model.classes]


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
    model: KeptModel,
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


def _shade_of_tasks(figure: "Figure", panels: Any, tasks: int) -> None:
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
    scale.set_label("task of the class", color=INK, size=8)
    scale.ax.tick_params(labelsize=7, colors=QUIET, length=0)
    scale.outline.set_visible(False)


def _points(model: KeptModel, how: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
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
