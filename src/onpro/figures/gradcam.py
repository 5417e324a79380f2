"""Figure of where networks look: GradCAM++ overlays on test images."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.experiments.statistics import evenly
from onpro.figures.models import LoadedModel, lacks_model, lacks_scores, load_models
from onpro.figures.style import (
    COLORS,
    INK,
    Options,
    blank,
    drawable,
    letters,
    names_of,
    short,
    wrapped,
)
from onpro.methods.registry import AnyMethod
from onpro.nn import convolutions
from onpro.streams import ClassIncremental

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAPS = ("last", "fine")

MOST_TASKS = 5
"""Largest number of rows; of more tasks, some at equal distances."""

MOST_COLUMNS = {"column": 5, "page": 9}
"""Largest number of networks side by side; more are below each other."""

LARGEST_IMAGE = 1.1
"""Largest side of an image, in inches."""

CANDIDATES = 50
"""Number of test images of a task among which one is chosen."""


def attention(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Where networks look: GradCAM++ on test images (Figs. 1, A1; `--x last|fine`).

    A row for each task, a column for each network; more networks than fit are below each other. All
    networks are shown the same image of a task: of its first 50 test images, the one that most of
    them classify correctly, the first of several. The map is that of the predicted class, on the
    last feature maps or on the last of twice their resolution (`fine`); an orange frame marks a
    wrong prediction.
    """
    maps = options.x or "last"
    if maps not in MAPS:
        raise UserError(f"attention is drawn on the {' or '.join(MAPS)} maps, not '{maps}'.")
    kept = drawable(experiments, lambda one: lacks_model(one) or lacks_scores(one))
    loaded = list(load_models(kept, options.data_dir))
    flat = [one for one, (model,) in loaded if not _has_maps(model.method, model.stream)]
    kept = drawable(
        [one for one, _ in loaded],
        lambda one: f"the encoder of {one} computes no feature maps." if one in flat else "",
    )
    models = [model for one, (model,) in loaded if one not in flat]
    if any(model.stream.classes != models[0].stream.classes for model in models):
        raise UserError(
            "these runs differ in their classes or the order of classes; name runs that agree."
        )
    names, _ = names_of(kept)
    tasks = evenly(models[0].learned, MOST_TASKS)
    longest = max(len(word) for name in names for word in name.split())
    widest = min(LARGEST_IMAGE, longest / letters(1, options.font))
    fitting = max(3, int(options.inches / widest) - 1)  # fewer would make a tall figure
    bands = math.ceil(len(models) / min(fitting, MOST_COLUMNS[options.width]))
    columns = math.ceil(len(models) / bands)
    side = min(LARGEST_IMAGE, (options.inches - 0.05 * options.font) / (1 + columns))
    titles = [wrapped(name, max(6, letters(side, options.font))) for name in names]
    lines = max(title.count("\n") + 1 for title in titles)
    height = bands * (side * len(tasks) + 0.02 * options.font * lines + 0.1)
    figure = blank(options, height, side * (1 + columns) + 0.05 * options.font)
    panels = figure.subplots(bands * len(tasks), 1 + columns, squeeze=False)
    for axes in panels.flat:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
    for row, task in enumerate(tasks):
        image, label = _choose(models, task)
        pixels = image.permute(1, 2, 0).numpy()
        title = f"task {task + 1}\n{short(models[0].stream.classes[label])}"
        for axes in panels[row :: len(tasks), 0]:
            axes.imshow(pixels)
            axes.set_ylabel(title, color=INK, size=options.font - 1, parse_math=False)
        for number, model in enumerate(models):
            band, column = divmod(number, columns)
            axes = panels[band * len(tasks) + row, 1 + column]
            heat, predicted = gradcam(model.method, image, fine=maps == "fine")
            axes.imshow(pixels)
            axes.imshow(heat.numpy(), cmap="viridis", alpha=0.5, interpolation="bilinear")
            axes.spines[:].set(visible=predicted != label, color=COLORS[1], linewidth=2)
            if row == 0:
                axes.set_title(titles[number], color=INK, size=options.font, parse_math=False)
    return figure


def gradcam(method: AnyMethod, image: Tensor, *, fine: bool = False) -> tuple[Tensor, int]:
    """Return the GradCAM++ map (height, width) in 0…1 of a uint8 image, and the predicted class.

    Args:
        method: A method whose network scores classes.
        image: (3, height, width).
        fine: Use the last feature maps of a higher resolution than the final ones.
    """
    network = method.predictor
    x = method.normalise(image[None]).requires_grad_()  # for maps of a frozen encoder
    network.eval()
    exactness = convolutions(network.rounding)
    with torch.enable_grad(), exactness, _feature_maps(network.encoder) as maps:
        scores = network(x)[0]
        predicted = int(scores.argmax())
        larger = [found for found in maps if found.shape[-1] > maps[-1].shape[-1]]
        chosen = larger[-1] if fine and larger else maps[-1]
        (gradient,) = torch.autograd.grad(scores[predicted], chosen)
    heat = plus_plus(chosen.detach()[0], gradient[0])
    height, width = image.shape[-2:]
    large = interpolate(heat[None, None], (height, width), mode="bilinear", align_corners=False)
    return _scaled(large[0, 0]), predicted


def _has_maps(method: AnyMethod, stream: ClassIncremental) -> bool:
    """Return whether the encoder computes feature maps."""
    network = method.predictor
    with network.evaluating(), _feature_maps(network.encoder) as maps:
        network(method.normalise(stream.test(0).images[:1]))
    return bool(maps)


def plus_plus(maps: Tensor, gradient: Tensor) -> Tensor:
    """Return the GradCAM++ map of one image, scaled to 0…1.

    α = g²/(2g² + g³·ΣA), 0 where undefined; w_k = Σ α·ReLU(g); map = ReLU(Σ_k w_k A^k).

    Args:
        maps: activations A (channels, height, width).
        gradient: ∂y/∂A of the class score y.
    """
    square, cube = gradient.square(), gradient**3
    below = 2 * square + cube * maps.sum(dim=(1, 2), keepdim=True)
    alpha = torch.where(below != 0, square / below, 0.0)
    weights = (alpha * gradient.relu()).sum(dim=(1, 2), keepdim=True)
    return _scaled((weights * maps).sum(dim=0).relu())


def _scaled(heat: Tensor) -> Tensor:
    low, high = heat.min(), heat.max()
    return (heat - low) / (high - low) if high > low else torch.zeros_like(heat)


@contextmanager
def _feature_maps(encoder: nn.Module) -> Iterator[list[Tensor]]:
    """Collect the feature maps that an encoder computes; the last are its final ones."""
    maps: list[Tensor] = []

    def keep(module: nn.Module, given: object, output: object) -> None:
        made = output[0] if isinstance(output, tuple) else output
        if isinstance(made, Tensor) and made.ndim == 4:
            maps.append(made)

    hooks = [module.register_forward_hook(keep) for module in encoder.modules()]
    try:
        yield maps
    finally:
        for hook in hooks:
            hook.remove()


def _choose(models: Sequence[LoadedModel], task: int) -> tuple[Tensor, int]:
    """Return the first test image of a task that most models classify correctly, and its label."""
    test = models[0].stream.test(task)
    some = test.select(torch.arange(min(CANDIDATES, len(test))))
    right = sum((model.method.predict(some.images) == some.labels).long() for model in models)
    assert isinstance(right, Tensor)
    best = int(right.argmax())
    return some.images[best], int(some.labels[best])
