"""Figure of the features of test images in two dimensions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from onpro.experiments.experiment import Experiment
from onpro.figures.models import KeptModel, first_of_each, load_model
from onpro.figures.style import COLORS, INK, MARKERS, Options, blank, names_of, wrapped
from onpro.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PER_CLASS = 200
"""Largest number of images of a class."""

MOST_POINTS = 3000
"""Largest number of images, so that t-SNE takes seconds."""

PERPLEXITY = 30.0

FEW = 20
"""Largest number of classes with a colour each; of more, each task has a colour."""

BATCH = 256


def features(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Features of test images at the end, by t-SNE or PCA (Figs. 3, A2; `--x tsne|pca`).

    The encoder's features of at most 200 images of each class. Classes of the last task are drawn
    as crosses, older classes as dots.
    """
    names, place = names_of(experiments)
    models = [load_model(one, options.data_dir) for one in experiments]
    columns = min(3, len(models))
    rows = -(-len(models) // columns)
    figure = blank(options, rows * (options.inches / columns + 0.3) + 0.5)
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes in panels.flat[len(models) :]:
        axes.set_visible(False)
    for axes, name, model in zip(panels.flat, names, models, strict=False):
        chosen, points = _points(model, options)
        labels = model.test.labels[chosen].tolist()
        task_of = {label: t for t, own in enumerate(model.task_classes) for label in own}
        newest = set(model.task_classes[-1])
        few = len(model.classes) <= FEW
        for label in dict.fromkeys(labels):
            at = [k for k, other in enumerate(labels) if other == label]
            number = label if few else task_of[label]
            axes.scatter(
                points[at, 0],
                points[at, 1],
                s=4,
                linewidths=0.6,
                color=COLORS[number % len(COLORS)],
                marker="x" if label in newest else MARKERS[number // len(COLORS) % len(MARKERS)],
                label=visible(model.classes[label]) if few else f"task {number + 1}",
            )
        axes.set_title(wrapped(name, 40), loc="left", color=INK, size=options.font)
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_color("#c0c0c0")
    handles, texts = panels[0][0].get_legend_handles_labels()
    unique = dict(zip(texts, handles, strict=True))
    legend = figure.legend(
        unique.values(),
        unique.keys(),
        loc="outside lower left",
        ncols=5,
        frameon=False,
        fontsize=options.font,
        title=f"{place}; crosses: classes of the last task".lstrip("; "),
        title_fontsize=options.font,
        markerscale=2,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return figure


def _points(model: KeptModel, options: Options) -> tuple[torch.Tensor, NDArray[np.float64]]:
    """Return the chosen test images and the positions of their features."""
    per_class = max(1, min(PER_CLASS, MOST_POINTS // len(model.classes)))
    chosen = first_of_each(model.test.labels, range(len(model.classes)), per_class)
    method = model.method
    images = model.test.select(chosen).images
    h = torch.cat([method.eval_features(method.normalise(part)) for part in images.split(BATCH)])
    values = h.double().numpy()
    if options.x == "pca":
        centred = values - values.mean(axis=0)
        _, _, axes = np.linalg.svd(centred, full_matrices=False)
        projected: NDArray[np.float64] = centred @ axes[:2].T
        return chosen, projected
    from sklearn.manifold import TSNE

    perplexity = min(PERPLEXITY, max(1.0, (len(values) - 1) / 3))
    tsne = TSNE(perplexity=perplexity, init="pca", random_state=0)
    return chosen, tsne.fit_transform(values)
