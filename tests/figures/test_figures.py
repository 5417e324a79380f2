"""Figures of finished runs."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from onpro.errors import UserError
from onpro.experiments.grouping import found
from onpro.figures import FIGURES, draw
from onpro.runs import Finished


def finished(method: str, seed: int) -> Finished:
    accuracy = [[90.0 - seed, None, None], [60.0, 80.0, None], [50.0, 55.0 + seed, 85.0]]
    result = {"method": method, "data": "digits", "memory": 50, "seed": seed, "accuracy": accuracy}
    experiment = {"experiment": f"{method} on digits"}
    return Finished(Path(f"{method}-digits-m50-s{seed}-0123abcd"), result | experiment)


def labels(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text().replace("\u00a0", " ") for text in legend.get_texts()]


@pytest.mark.parametrize("name", sorted(FIGURES))
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_figure_is_drawn(name: str, seeds: int, tmp_path: Path) -> None:
    runs = [finished(method, seed) for method in ("er", "onpro") for seed in range(seeds)]
    draw(name, found(runs), tmp_path / "figure.png")
    with Image.open(tmp_path / "figure.png") as image:
        assert min(image.size) > 300
        assert len(image.convert("L").getcolors() or []) > 20


def test_the_accuracy_figure_names_each_experiment_and_ends_at_its_mean() -> None:
    figure = FIGURES["accuracy"](
        found([finished("onpro", 0), finished("er", 0), finished("er", 2)])
    )
    (axes,) = figure.axes
    assert labels(figure) == [
        "er, digits, M = 50: 63.7 ± 0.5 (2 runs)",
        "onpro, digits, M = 50: 63.3 (1 run)",
    ]
    ends = [np.asarray(line.get_ydata(), dtype=float)[-1] for line in axes.get_lines()]
    assert ends == pytest.approx([63.667, 63.333], abs=0.001)


def test_many_lines_differ_without_colour_and_the_legend_covers_none_of_them() -> None:
    figure = FIGURES["accuracy"](found(finished(f"method{number}", number) for number in range(20)))
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    looks = {(str(line.get_marker()), line.get_linestyle()) for line in axes.get_lines()}
    assert len(looks) == 20
    box, frame = legend.get_window_extent(), axes.get_window_extent()
    assert not box.overlaps(frame)
    assert frame.height > 200
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_many_matrices_form_a_grid() -> None:
    figure = FIGURES["matrix"](found(finished(f"method{number}", 0) for number in range(11)))
    width, height = figure.get_size_inches()
    assert 0.5 < width / height < 2
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.get_title(loc="left")]
    assert len(shown) == 11


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_runs_of_different_length_are_averaged_where_they_meet(name: str) -> None:
    longer, shorter = finished("er", 0), finished("er", 1)
    shorter.result["accuracy"] = [row[:2] for row in shorter.result["accuracy"][:2]]
    figure = FIGURES[name](found([longer, shorter]))
    figure.draw_without_rendering()
    if name == "accuracy":
        assert labels(figure) == ["er, digits, M = 50: 63.3 (1 run)"]


@pytest.mark.parametrize("name", sorted(FIGURES))
def test_names_are_no_formulas(name: str, tmp_path: Path) -> None:
    """A path with two dollars would be read as one, and this one is none."""
    run = finished("er", 0)
    run.result["data"] = "folder:/home/$a^b_{/c$|d"
    draw(name, found([run]), tmp_path / "figure.svg")
    figure = FIGURES[name](found([run]))
    shown = labels(figure) if name == "accuracy" else [figure.axes[0].get_title(loc="left")]
    assert "$a^b_{/c$|d" in shown[0]


def test_bad_names_and_endings_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        draw("acuracy", found([finished("er", 0)]), tmp_path / "x.png")
    with pytest.raises(UserError, match="cannot save"):
        draw("accuracy", found([finished("er", 0)]), tmp_path / "x.nonsense")
    with pytest.raises(UserError, match="cannot write"):
        draw("accuracy", found([finished("er", 0)]), tmp_path / "no" / "x.png")
