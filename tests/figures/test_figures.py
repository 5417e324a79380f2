"""Figures of finished runs."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onpro.errors import UserError
from onpro.experiments import Finished
from onpro.figures import FIGURES, draw


def finished(method: str, seed: int) -> Finished:
    accuracy = [[90.0 - seed, None, None], [60.0, 80.0, None], [50.0, 55.0 + seed, 85.0]]
    result = {"method": method, "data": "digits", "memory": 50, "seed": seed, "accuracy": accuracy}
    return Finished(Path(f"{method}-digits-m50-s{seed}-0123abcd"), result)


@pytest.mark.parametrize("name", sorted(FIGURES))
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_figure_is_drawn(name: str, seeds: int, tmp_path: Path) -> None:
    runs = [finished(method, seed) for method in ("er", "onpro") for seed in range(seeds)]
    draw(name, runs, tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as image:
        assert min(image.size) > 300
        assert len(image.convert("L").getcolors() or []) > 20


def test_the_accuracy_figure_names_each_experiment_and_ends_at_its_mean() -> None:
    figure = FIGURES["accuracy"]([finished("er", 0), finished("er", 2), finished("onpro", 0)])
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels == ["er, digits, M = 50, 2 runs", "onpro, digits, M = 50, 1 run"]
    ends = [np.asarray(line.get_ydata(), dtype=float)[-1] for line in axes.get_lines()]
    assert ends == pytest.approx([63.667, 63.333], abs=0.001)


def test_bad_names_and_endings_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        draw("acuracy", [finished("er", 0)], tmp_path / "x.png")
    with pytest.raises(UserError, match="cannot save"):
        draw("accuracy", [finished("er", 0)], tmp_path / "x.nonsense")
    with pytest.raises(UserError, match="cannot write"):
        draw("accuracy", [finished("er", 0)], tmp_path / "no" / "x.png")
