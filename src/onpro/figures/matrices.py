"""Figures of accuracy matrices, confusion matrices and the content of memories."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onpro.errors import counted
from onpro.experiments.experiment import Experiment
from onpro.experiments.matrices import (
    LARGEST_SIDE,
    Course,
    accuracy_matrix,
    confusion_matrix,
    course,
)
from onpro.figures.heat_maps import NAMED, HeatMap, class_labels, heat_maps, numbers
from onpro.figures.style import Options, drawable, joined, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def matrix(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Accuracy on each task after each task."""
    from matplotlib.colors import Normalize

    titles, common = _titles(experiments)
    maps = []
    for title, one in zip(titles, experiments, strict=True):
        drawn = accuracy_matrix(one.runs, LARGEST_SIDE)
        labels = numbers(len(drawn.rows), drawn.group)
        maps.append(HeatMap(title, _square(drawn.rows), labels, labels))
    scale = joined("accuracy, %", common)
    return heat_maps(maps, ("task", "after task"), scale, Normalize(0, 100), options)


def confusion(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Share of each class's test images predicted as each class, at the end (Fig. 4b)."""
    from matplotlib.colors import Normalize, PowerNorm

    titles, common = _titles(experiments)
    maps = []
    for title, one in zip(titles, experiments, strict=True):
        drawn = confusion_matrix(one.runs, LARGEST_SIDE)
        labels = class_labels(drawn.labels, drawn.group)
        maps.append(HeatMap(title, _square(drawn.rows), labels, labels))
    scale = joined("share of images, %", common)
    many = any(len(one.rows) > NAMED for one in maps)  # whose shares are small
    norm = PowerNorm(0.5, 0, 100) if many else Normalize(0, 100)
    return heat_maps(maps, ("predicted", "class"), scale, norm, options)


def memory(experiments: Sequence[Experiment], options: Options) -> "Figure":
    """Number of images of each class in the memory, at each evaluation.

    The mean over the seeds of an experiment; classes in order of arrival. Of more than 100 classes
    a cell is the mean of neighbours.
    """
    from matplotlib.colors import Normalize

    known = drawable(experiments, _lacks_content)
    names, common = names_of(known)
    contents = [found for found in map(_content, known) if found]
    maps = []
    for name, found in zip(names, contents, strict=True):
        title = _titled(name, found.runs)
        cells = np.array(found.rows, dtype=float)
        cells[cells == 0] = np.nan
        maps.append(HeatMap(title, cells, class_labels(found.labels, found.group), found.columns))
    highest = max(float(np.nanmax(one.cells, initial=1.0)) for one in maps)
    axis_titles = " or ".join(sorted({found.at for found in contents})), "class"
    scale = joined("images of a class in the memory", common)
    return heat_maps(maps, axis_titles, scale, Normalize(0, highest), options)


def _lacks_content(experiment: Experiment) -> str:
    content = _content(experiment)
    if content and any(map(any, content.rows)):
        return ""
    if content:
        return f"{experiment} keeps no images in its memory."
    return (
        f"no run of {experiment} has noted what its memory holds, as older versions do not: "
        "train it again with onpro run --fresh."
    )


def _content(experiment: Experiment) -> Course | None:
    return course(experiment.runs, "memory_content", LARGEST_SIDE)


def _titles(experiments: Sequence[Experiment]) -> tuple[list[str], str]:
    names, common = names_of(experiments)
    counts = [len(one.runs) for one in experiments]
    return [_titled(name, count) for name, count in zip(names, counts, strict=True)], common


def _titled(name: str, runs: int) -> str:
    return f"{name}\n{counted(runs, 'run')}"


def _square(rows: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Return rows of any length as a square matrix, filled up with NaN."""
    cells = np.full((len(rows), len(rows)), np.nan)
    for row, values in enumerate(rows):
        cells[row, : len(values)] = values
    return cells
