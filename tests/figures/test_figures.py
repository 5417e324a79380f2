"""Figures of finished runs."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from onpro.errors import UserError
from onpro.experiments.experiment import CUE_MEASURES
from onpro.experiments.grouping import found
from onpro.figures import FIGURES, draw
from onpro.figures.style import Options, Width
from onpro.runs import Finished
from tests.reports.made_up import result


def finished(method: str, seed: int, **settings: float) -> Finished:
    accuracy = [[90.0 - seed, None, None], [60.0, 80.0, None], [50.0, 55.0 + seed, 85.0]]
    told = {"data": "digits", "accuracy": accuracy, "average_accuracy": 64.0, "memory": 50}
    config = {"method": method, "data": "digits", "settings": {"replay_batch": 64} | settings}
    experiment = {"experiment": f"{method} {settings}", "config": config}
    told |= dict.fromkeys(CUE_MEASURES.values(), 10.0 + seed)
    folder = Path(f"{method}-digits-m50-s{seed}-0123abcd")
    return Finished(folder, result(method, seed) | told | experiment)


def drawn(name: str, runs: list[Finished], **options: str) -> Figure:
    return FIGURES[name](found(runs), Options(**options))  # type: ignore[arg-type] # of literals


def labels(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text().replace("\u00a0", " ") for text in legend.get_texts()]


@pytest.mark.parametrize("name", sorted(set(FIGURES) - {"attention", "features"}))
@pytest.mark.parametrize(("seeds", "width"), [(1, "column"), (3, "page")])
def test_every_figure_is_drawn(name: str, seeds: int, width: Width, tmp_path: Path) -> None:
    runs = [
        finished(method, seed, replay_batch=size)
        for method in ("er", "onpro")
        for size in (10, 20)
        for seed in range(seeds)
    ]
    draw(name, found(runs), tmp_path / "figure.png", Options(width))
    with Image.open(tmp_path / "figure.png") as image:
        assert min(image.size) > 250
        assert len(image.convert("L").getcolors() or []) > 20


def test_the_accuracy_figure_names_each_experiment_and_ends_at_its_mean() -> None:
    figure = drawn("accuracy", [finished("onpro", 0), finished("er", 0), finished("er", 2)])
    (axes,) = figure.axes
    assert labels(figure) == [
        "er: 63.7 ± 0.5 (2 runs)",
        "onpro: 63.3 (1 run)",
    ]
    ends = [np.asarray(line.get_ydata(), dtype=float)[-1] for line in axes.get_lines()]
    assert ends == pytest.approx([63.667, 63.333], abs=0.001)


def test_many_lines_differ_without_colour_and_the_legend_covers_none_of_them() -> None:
    figure = drawn("accuracy", [finished(f"method{number}", number) for number in range(20)])
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
    figure = drawn("matrix", [finished(f"method{number}", 0) for number in range(11)])
    width, height = figure.get_size_inches()
    assert 0.5 < width / height < 2
    shown = [axes for axes in figure.axes if axes.get_visible() and axes.get_title(loc="left")]
    assert len(shown) == 11


@pytest.mark.parametrize("name", ["accuracy", "forgetting", "matrix"])
def test_runs_of_different_length_are_averaged_where_they_meet(name: str) -> None:
    longer, shorter = finished("er", 0), finished("er", 1)
    shorter.result["accuracy"] = [row[:2] for row in shorter.result["accuracy"][:2]]
    figure = drawn(name, [longer, shorter])
    figure.draw_without_rendering()
    if name == "accuracy":
        assert labels(figure) == ["er: 63.3 (1 run)"]


@pytest.mark.parametrize("name", ["accuracy", "matrix", "confusion", "time", "compute"])
def test_names_are_no_formulas(name: str, tmp_path: Path) -> None:
    """A path with two dollars would be read as one, and this one is none."""
    run = finished("er", 0)
    run.result["data"] = "folder:/home/$a^b_{/c$|d"
    draw(name, found([run]), tmp_path / "figure.svg")
    figure = drawn(name, [run, finished("er", 1)])
    shown = [text.get_text() for text in figure.findobj(Text)]
    assert any("$a^b_{/c$|d" in text.replace("\n", "") for text in shown)


def test_bad_names_and_endings_are_mistakes(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        draw("acuracy", found([finished("er", 0)]), tmp_path / "x.png")
    with pytest.raises(UserError, match="cannot save"):
        draw("accuracy", found([finished("er", 0)]), tmp_path / "x.nonsense")
    with pytest.raises(UserError, match="cannot write"):
        draw("accuracy", found([finished("er", 0)]), tmp_path / "no" / "x.png")


def test_a_setting_is_on_the_axis_and_the_rest_in_the_legend() -> None:
    runs = [
        finished(method, seed, replay_batch=size)
        for method in ("er", "onpro")
        for size in (10, 64, 20)
        for seed in range(2)
    ]
    figure = drawn("sweep", runs)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["10", "20", "64"]
    assert axes.get_xlabel() == "replay batch"
    assert labels(figure) == ["er, digits, M = 50", "onpro, digits, M = 50"]
    accuracy, seconds = drawn("replay", runs).axes
    assert (accuracy.get_title(loc="left"), seconds.get_title(loc="left")) == (
        "accuracy, %",
        "seconds, s",
    )


def test_what_cannot_be_on_the_axis_is_a_mistake() -> None:
    runs = [finished("er", 0), finished("er", 0, replay_batch=20)]
    with pytest.raises(UserError, match="did you mean 'replay_batch'"):
        drawn("sweep", runs, x="replay_bach")
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        drawn("sweep", runs, measure="acuracy")
    with pytest.raises(UserError, match="seconds or images"):
        drawn("compute", runs, x="money")
    with pytest.raises(UserError, match="differ in no setting"):
        drawn("sweep", runs[:1])


def test_labels_of_points_do_not_overlap() -> None:
    runs = [finished(f"method-{number}", 0) for number in range(6)]
    for run in runs:
        run.result["train_seconds"] = 10.0
    figure = drawn("compute", runs)
    figure.draw_without_rendering()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) == 6
    assert not any(a.overlaps(b) for k, a in enumerate(boxes) for b in boxes[:k])


def test_shared_time_is_marked() -> None:
    alone, beside = finished("er", 0), finished("onpro", 0)
    alone.result["shared_by"] = 1
    beside.result["shared_by"] = 3
    alone.result["train_seconds"], beside.result["train_seconds"] = 10.0, 20.0
    shown = [text.get_text() for text in drawn("time", [alone, beside]).axes[0].texts]
    assert [text.split(" s,")[0].strip() for text in shown if "shared" in text] == ["20"]


@pytest.mark.parametrize("classes", [1, 2, 200, 1000])
def test_confusions_of_any_number_of_classes(classes: int) -> None:
    run = Finished(Path("a"), result(classes=classes))
    drawn("confusion", [run]).draw_without_rendering()


def without_shortcut(method: str) -> Finished:
    run = finished(method, 0)
    kept = {name: v for name, v in run.result.items() if name not in CUE_MEASURES.values()}
    return Finished(run.folder, kept)


def test_the_shortcut_figure_shows_means_and_intervals_of_each_experiment() -> None:
    figure = drawn("shortcut", [finished(name, seed) for name in ("er", "scr") for seed in (0, 3)])
    figure.draw_without_rendering()
    accuracy, reliance, following = figure.axes
    assert [text.get_text() for text in accuracy.get_yticklabels()] == ["er", "scr"]
    shown = {float(np.asarray(line.get_xdata())[0]) for line in reliance.get_lines()}
    assert shown == {0.0, 11.5}, "the axis and the means"
    legend = following.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "class of any task",
        "class of any task, no cue",
        "class of the same task",
        "class of the same task, no cue",
    ]


def test_runs_without_a_shortcut_are_left_out_of_its_figure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    figure = drawn("shortcut", [finished("er", 0), without_shortcut("scr")])
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == ["er"]
    assert caplog.messages == ["left out, since it has no shortcut: scr, digits, M = 50."]
    with pytest.raises(UserError, match="none of these runs has a shortcut: train some with onpro"):
        drawn("shortcut", [without_shortcut("scr")])
