"""Figures of finished runs."""

from dataclasses import asdict
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from onpro.errors import UserError
from onpro.experiments.experiment import CUE_MEASURES
from onpro.experiments.grouping import found
from onpro.figures import FIGURES, draw
from onpro.figures.style import Options, Width, wrapped
from onpro.methods import settings_for
from onpro.runs import Finished
from tests.reports.made_up import result


def measured(tasks: int, per_task: int) -> dict[str, Any]:
    """What a probe of prototypes has measured."""
    count = tasks * per_task
    return {
        "every": 10,
        "replay_batch": 64,
        "space": "projection",
        "step": [10 * (k + 1) for k in range(count)],
        "task": [k // per_task for k in range(count)],
        "old": [None] * per_task + [1 - k / 5 / count for k in range(count - per_task)],
        "new": [1 - k % per_task / 3 / count for k in range(count)],
    }


def finished(method: str, seed: int, **settings: float) -> Finished:
    accuracy = [[90.0 - seed, None, None], [60.0, 80.0, None], [50.0, 55.0 + seed, 85.0]]
    told = {"data": "digits", "accuracy": accuracy, "average_accuracy": 64.0, "memory": 50}
    told |= {"memory_content": [[25, 25, 0, 0, 0, 0], [12, 13, 12, 13, 0, 0], [8, 9, 8, 9, 8, 8]]}
    told |= {"prototypes": measured(3, 20 + seed // 10)}
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


@pytest.mark.parametrize("name", sorted(set(FIGURES) - {"attention", "features", "paper"}))
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
    looks = [(str(line.get_marker()), str(line._dash_pattern)) for line in axes.get_lines()]  # type: ignore[attr-defined] # matplotlib has no other way
    assert len(set(looks)) == 20
    colours = [line.get_color() for line in axes.get_lines()]
    assert all(
        a[0] != b[0] and a[1] != b[1]
        for k, a in enumerate(looks)
        for n, b in enumerate(looks[:k])
        if colours[k] == colours[n]
    )
    box, frame = legend.get_window_extent(), axes.get_window_extent()
    assert not box.overlaps(frame)
    assert frame.height > 200
    assert box.y0 >= 0
    assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize(("name", "most"), [("accuracy", 35), ("sweep", 35), ("compute", 56)])
def test_more_than_can_be_told_apart_is_refused(name: str, most: int) -> None:
    runs = [finished(f"method-with-a-long-name-{number}", 0) for number in range(most + 1)]
    if name == "sweep":
        runs += [finished(run.result["method"], 0, replay_batch=20) for run in runs]
    for run in runs:
        run.result.update(train_seconds=10.0, average_accuracy=60.0)
    said = rf"would have {most + 1} (lines|points), of which at most {most} can be told apart: name"
    with pytest.raises(UserError, match=said):
        drawn(name, runs)
    drawn(name, [run for run in runs if run.result["method"] != runs[0].result["method"]])


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
    assert labels(figure) == ["er", "onpro"]
    assert figure.legends[0].get_title().get_text().replace("\u00a0", " ") == "digits, M = 50"
    accuracy, seconds = drawn("replay", runs).axes
    assert (accuracy.get_title(loc="left"), seconds.get_title(loc="left")) == (
        "accuracy, %",
        "training time, s",
    )


def test_a_sweep_finds_the_setting_in_which_runs_differ() -> None:
    """Not one in which methods differ, whose experiments are points and no lines."""
    memories = [finished("er", 0, learning_rate=0.1), finished("er", 0, learning_rate=0.1)]
    memories[1].result.update(memory=100, experiment="er with more memory")
    figure = drawn("sweep", [*memories, finished("onpro", 0, learning_rate=0.01)])
    assert figure.axes[0].get_xlabel() == "memory"
    assert labels(figure) == ["er"]
    assert figure.legends[0].get_title().get_text() == "digits", "and no M, which is on the axis"


def test_settings_of_the_stream_are_swept_with_their_defaults() -> None:
    usual, large = (finished("er", seed) for seed in (0, 0))
    usual.result["config"] |= {"shortcut": 0.9}
    large.result["config"] = usual.result["config"] | {"shortcut_size": 0.4}
    large.result["experiment"] = "er with larger cues"
    for run in (usual, large):
        run.result["shortcut_reliance"] = -5.0
    (axes,) = drawn("sweep", [usual, large], measure="reliance").axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0.2", "0.4"]
    assert axes.get_ylim()[0] < -5, "values below 0 are shown"


def at_values(setting: str, values: list[Any], width: Width = "page") -> tuple[Figure, list[Any]]:
    """A sweep of a setting, and the horizontal positions of its points."""
    runs = [finished("er", 0, **{setting: value}) for value in values]
    figure = drawn("sweep", runs, x=setting, width=width)
    figure.draw_without_rendering()
    (line,) = (line for line in figure.axes[0].get_lines() if line.get_marker() == "o")
    return figure, np.asarray(line.get_xdata()).tolist()


@pytest.mark.parametrize(
    ("setting", "values", "scale"),
    [
        ("replay_batch", [10, 20, 80], "linear"),
        ("replay_batch", [10, 20, 60, 100], "log"),
        ("replay_batch", [*range(10, 101, 10)], "linear"),
        ("learning_rate", [0.0, 0.01, 0.1], "linear"),
        ("learning_rate", [0.001, 0.01, 0.1], "log"),
    ],
)
def test_numbers_are_to_scale(setting: str, values: list[float], scale: str) -> None:
    figure, places = at_values(setting, values)
    (axes,) = figure.axes
    assert places == values
    assert axes.get_xscale() == scale
    assert axes.get_xlabel().endswith("(log scale)") == (scale == "log")
    assert [text.get_text() for text in axes.get_xticklabels()] == [f"{v:g}" for v in values]


@pytest.mark.parametrize(
    "values", [["10", "never", "often"], [True, False], [None, 1, 30], [1e300, 2.0]]
)
def test_what_is_no_number_is_at_equal_distances(values: list[Any]) -> None:
    assert at_values("mixup", values)[1] == [*range(len(values))]


@pytest.mark.parametrize("width", ["column", "page"])
@pytest.mark.parametrize(
    "values", [[1, 2, 3, 999, 1000], [10.0 + k for k in range(60)], [200 * "a", 200 * "b", "c"]]
)
def test_labels_of_values_do_not_overlap(values: list[Any], width: Width) -> None:
    figure, _ = at_values("replay_batch", values, width)
    shown = [text for text in figure.axes[0].get_xticklabels() if text.get_visible()]
    boxes = [text.get_window_extent() for text in shown]
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    ends = shown[0].get_text(), shown[-1].get_text()
    assert ends == tuple(v if isinstance(v, str) else f"{v:g}" for v in (values[0], values[-1]))


def on_a_stream(method: str, kind: str, **settings: Any) -> Finished:
    run = finished(method, 0)
    run.configuration["stream"] = {"kind": kind, **settings}
    run.result["experiment"] = f"{method} {kind} {settings}"
    return run


@pytest.mark.parametrize("x", ["blur", ""])
def test_settings_of_the_kind_of_stream_are_swept_and_other_ones_in_the_legend(x: str) -> None:
    runs = [on_a_stream("er", "blurry", blur=blur) for blur in (0.0, 10.0, 30.0)]
    for classes in (30.0, 50.0):
        settings = [{"disjoint_classes": classes, "blur": blur} for blur in (10.0, 30.0)]
        runs += [on_a_stream("er", "i-blurry", **own) for own in settings]
    figure = drawn("sweep", runs, x=x)
    assert figure.axes[0].get_xlabel() == "blur"
    assert sorted(labels(figure)) == [
        "er, stream=blurry",
        "er, stream=i-blurry",
        "er, stream=i-blurry (disjoint_classes=30.0)",
    ]
    unknown = [on_a_stream("er", "late", late=late, most=5) for late in (10, 20)]
    figure = drawn("sweep", unknown, x="late")
    assert figure.legends[0].get_title().get_text().endswith("stream=late (most=5)")


def test_what_cannot_be_on_the_axis_is_a_mistake() -> None:
    runs = [finished("er", 0), finished("er", 0, replay_batch=20)]
    with pytest.raises(UserError, match="did you mean 'replay_batch'"):
        drawn("sweep", runs, x="replay_bach")
    with pytest.raises(UserError, match="did you mean 'accuracy'"):
        drawn("sweep", runs, measure="acuracy")
    with pytest.raises(UserError, match="seconds or images"):
        drawn("compute", runs, x="money")
    for alone in (runs[:1], [runs[0], finished("onpro", 0, learning_rate=0.01)]):
        with pytest.raises(UserError, match="no two of these experiments differ in one setting"):
            drawn("sweep", alone)
        with pytest.raises(UserError, match=r"no two .* differ only in replay_batch"):
            drawn("replay", alone)
    with pytest.raises(UserError, match="none of these runs has measured 'anytime'"):
        drawn("sweep", runs, measure="anytime")


def test_labels_of_points_overlap_neither_each_other_nor_points_nor_the_front() -> None:
    runs = [finished(f"method-{number}", 0) for number in range(8)]
    for number, run in enumerate(runs):
        run.result.update(train_seconds=10.0 + number // 6, average_accuracy=60.0 + number // 2)
    figure = drawn("compute", runs)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    front, *points = axes.get_lines()
    boxes = [text.get_window_extent() for text in axes.texts]
    boxes += [line.get_window_extent() for line in points]
    assert len(axes.texts) == 8
    assert not any(a.overlaps(b) for k, a in enumerate(boxes[:8]) for b in boxes[:k])
    frame = axes.get_window_extent()
    corners = front.get_transform().transform(front.get_path().vertices)
    for box in boxes[:8]:
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1
        assert not any(box.contains(*corner) for corner in corners)


def test_experiments_on_other_data_and_streams_have_a_front_of_their_own() -> None:
    runs = [finished(f"method-{number}", 0) for number in range(6)]
    for number, run in enumerate(runs):
        run.result.update(train_seconds=10.0 + number, average_accuracy=60.0 - 5 * (number // 2))
        run.result["average_accuracy"] += number % 2
    for run in runs[2:4]:
        run.result["data"] = "cifar100"
    for run in runs[4:]:
        run.configuration["stream"] = {"kind": "blurry", "blur": 10}
        run.configuration["evaluations"] = len(run.folder.name) % 2
    (axes,) = drawn("compute", runs).axes
    fronts = [line for line in axes.get_lines() if line.get_marker() == "None"]
    assert [np.asarray(front.get_xdata()).tolist() for front in fronts] == [
        [10, 11],
        [12, 13],
        [14, 15],
    ]


def test_names_of_points_without_room_beside_them_are_in_a_legend() -> None:
    names = [f"a-method-with-a-long-name-{number}" for number in range(16)]
    runs = [finished(name, 0) for name in names]
    for number, run in enumerate(runs):
        run.result.update(train_seconds=10.0 + number % 2, average_accuracy=60.0 + number // 2)
    figure = drawn("compute", runs, width="column")
    assert_nothing_is_covered(figure)
    assert not figure.axes[0].texts
    assert sorted(labels(figure)) == sorted(names)


@pytest.mark.parametrize("sharing", [{"shared_by": 3}, {"shared_by": 1, "gpu_processes": 2}])
def test_shared_time_is_marked(sharing: dict[str, int]) -> None:
    alone, beside = finished("er", 0), finished("onpro", 0)
    alone.result.update(shared_by=1, gpu_processes=None, train_seconds=10.0, images_seen=500)
    beside.result.update(sharing | {"train_seconds": 20.0, "images_seen": 30_000})
    (part,) = drawn("time", [alone, beside]).subfigs
    seconds, speed = part.axes
    assert [text.get_text() for text in seconds.get_yticklabels()] == ["er", "onpro"]
    assert [text.get_text() for text in seconds.texts] == ["10", "20"]
    assert [text.get_text() for text in speed.texts] == ["50", "1,500"]
    dark, light = (sum(to_rgb(bar.get_facecolor())) for bar in seconds.patches)
    assert dark < light
    assert "lighter: shared the device" in part.get_suptitle()


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
    (message,) = caplog.messages
    assert message.startswith("left out: scr, digits, M = 50 has no shortcut: train it with onpro")
    with pytest.raises(UserError, match="scr, digits, M = 50 has no shortcut: train it with onpro"):
        drawn("shortcut", [without_shortcut("scr")])


WIDTHS: list[Width] = ["column", "page"]


def assert_nothing_is_covered(figure: Figure) -> None:
    """Neither the legend nor a title lies on an axes' data, and all of them are in the figure."""
    figure.draw_without_rendering()
    panels = [axes for axes in figure.axes if axes.get_visible() and not axes.get_label()]
    frames = [axes.get_window_extent() for axes in panels]
    texts = [axes.title for axes in figure.axes] + [axes._left_title for axes in figure.axes]  # type: ignore[attr-defined] # matplotlib has no other way
    shown = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    shown += [legend.get_window_extent() for legend in figure.legends]
    for box in shown:
        assert not any(box.overlaps(frame) for frame in frames)
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
    assert min(frame.height for frame in frames) > 20
    assert min(frame.width for frame in frames) > 30


@pytest.mark.thorough
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(set(FIGURES) - {"attention", "features", "paper"}))
def test_fourteen_methods_are_legible(name: str, width: Width) -> None:
    runs = [finished(f"method{number}", number) for number in range(14)]
    if name in ("replay", "sweep"):
        runs += [finished(f"method{number}", number, replay_batch=20) for number in range(14)]
    figure = drawn(name, runs, width=width)
    assert_nothing_is_covered(figure)
    texts = " ".join(text.get_text() for text in figure.findobj(Text))
    assert all(f"method{number}" in texts for number in range(14))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["confusion", "memory"])
def test_matrices_of_different_classes_are_legible(name: str, width: Width) -> None:
    runs = []
    for classes in (6, 7, 8, 9):
        told: dict[str, Any] = {
            "classes": [f"automobile {k}" for k in range(classes)],
            "memory_content": [[k + 1] * classes for k in range(4)],
            "experiment": str(classes),
            "curve": [{"images": 50 * (k + 1)} for k in range(4 if classes == 9 else 3)],
        }
        values = result(f"method with {classes} classes", classes=classes) | told
        runs.append(Finished(Path(str(classes)), values))
    figure = drawn(name, runs, width=width)
    assert_nothing_is_covered(figure)
    below = [axes.xaxis.label.get_window_extent() for axes in figure.axes[: len(runs)]]
    assert not any(a.overlaps(b) for a, b in combinations(below, 2))
    assert all(box.x1 <= figure.bbox.x1 + 1 for box in below)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["accuracy", "forgetting", "matrix", "memory", "prototypes"])
def test_a_hundred_tasks_are_legible(name: str, width: Width) -> None:
    content = [[10 * (k <= 2 * task + 1) for k in range(200)] for task in range(100)]
    more = {"memory_content": content, "prototypes": measured(100, 5)}
    run = Finished(Path("a"), result(tasks=100, classes=200) | more)
    figure = drawn(name, [run], width=width)
    assert_nothing_is_covered(figure)
    for axes in figure.axes:
        ticks = [text.get_window_extent() for text in axes.get_xticklabels() if text.get_text()]
        assert not any(a.overlaps(b) for a, b in pairwise(ticks))


def test_the_memory_is_shown_class_by_class_as_a_mean_over_seeds() -> None:
    runs = [finished("er", seed) for seed in range(2)]
    runs[1].result["memory_content"] = [[27, 23, 0, 0, 0, 0], *runs[1].result["memory_content"][1:]]
    figure = drawn("memory", runs)
    assert figure.axes[0].get_title(loc="left") == "er\n2\u00a0runs"
    (image,) = figure.axes[0].get_images()
    assert np.nan_to_num(np.asarray(image.get_array()))[:, 0].tolist() == [26, 24, 0, 0, 0, 0]
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [
        f"class {k}" for k in range(6)
    ]
    assert figure.axes[0].get_xlabel() == "after task"


@pytest.mark.parametrize("classes", [1, 20, 21, 1000])
def test_memories_of_any_number_of_classes(classes: int) -> None:
    told = {"memory_content": [[0] * classes, [1] * classes, [2] * classes]}
    figure = drawn("memory", [Finished(Path("a"), result(classes=classes) | told)])
    assert_nothing_is_covered(figure)
    shown = np.asarray(figure.axes[0].get_images()[0].get_array())
    assert shown.shape == (min(classes, 100), 3)
    ticks = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert ticks[-1] == ("class 0" if classes == 1 else "class 19" if classes == 20 else ticks[-1])
    assert classes < 1000 or ticks[-1] == "1000"


def test_memories_without_images_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    empty = Finished(Path("a"), result("pass") | {"memory_content": [[0] * 6] * 3})
    figure = drawn("memory", [empty, finished("er", 0)])
    shown = [axes.get_title(loc="left") for axes in figure.axes if axes.get_images()]
    assert shown == ["er\n1\u00a0run"]
    assert caplog.messages == ["left out: pass, cifar10, M = 200 keeps no images in its memory."]
    with pytest.raises(UserError, match="pass, cifar10, M = 200 keeps no images in its memory"):
        drawn("memory", [empty])


@pytest.mark.parametrize(("name", "said"), [("memory", "--fresh"), ("prototypes", "--probe")])
def test_runs_of_an_older_version_have_not_noted_it(
    name: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match=f"no run of .* has .*{said}"):
        drawn(name, [Finished(Path("a"), result())])
    drawn(name, [Finished(Path("a"), result("older")), finished("er", 0)])
    (message,) = caplog.messages
    assert message.startswith("left out: no run of older, cifar10, M = 200 has ")
    older = result() | {"memory_content": [[], [1] * 6, [1] * 6]}  # resumed by this version
    if name == "memory":
        with pytest.raises(UserError, match="--fresh"):
            drawn(name, [Finished(Path("a"), older)])


def test_prototypes_are_drawn_for_old_and_new_classes_task_by_task() -> None:
    run = finished("onpro", 0)
    old, new = drawn("prototypes", [run]).axes
    points = [len(np.asarray(line.get_xdata())) for line in old.get_lines()]
    assert [count for count in points if count > 2] == [20, 20]
    lines = [line for line in new.get_lines() if len(np.asarray(line.get_xdata())) > 2]
    assert len(lines) == 3
    measured_new = run.result["prototypes"]["new"]
    assert np.asarray(lines[1].get_ydata()).tolist() == pytest.approx(measured_new[20:40])


def test_the_ends_of_tasks_are_drawn_where_all_prototypes_have_the_same() -> None:
    def ends(*runs: Finished) -> list[float]:
        lines = drawn("prototypes", list(runs)).axes[0].get_lines()
        across = [np.asarray(line.get_xdata()) for line in lines]
        return [float(x[0]) for x in across if len(x) == 2]

    one, same, other = (finished(name, 0) for name in ("onpro", "er", "ocm"))
    other.result["prototypes"] = measured(3, 10)
    assert ends(one, same) == [205.0, 405.0]
    assert ends(one, other) == []


def test_what_is_measured_by_features_is_said_beside_projections() -> None:
    er, onpro = finished("er", 0), finished("onpro", 0)
    er.result["prototypes"] = er.result["prototypes"] | {"space": "features"}
    assert labels(drawn("prototypes", [er, onpro])) == ["er (features)", "onpro"]
    assert labels(drawn("prototypes", [er])) == ["er"]


def test_lines_of_prototypes_differ_without_colour() -> None:
    figure = drawn("prototypes", [finished(f"method{number}", 0) for number in range(5)])
    (legend,) = figure.legends
    looks = {str(line._dash_pattern) for line in legend.get_lines()}  # type: ignore[attr-defined] # matplotlib has no other way
    assert len(looks) == 5


def test_one_measurement_is_a_point() -> None:
    run = finished("onpro", 0)
    run.result["prototypes"] = measured(1, 1)
    drawn("prototypes", [run]).draw_without_rendering()


def of_the_paper(method: str, memory: int, accuracies: list[float]) -> list[Finished]:
    """Runs on CIFAR-10 with the paper's settings."""
    settings = asdict(settings_for(method, "cifar10"))
    config = {"method": method, "data": "cifar10", "memory": memory, "settings": settings}
    return [
        Finished(
            Path(f"{method}-m{memory}-s{seed}"),
            result(method, seed, memory=memory, average_accuracy=value, config=config),
        )
        for seed, value in enumerate(accuracies)
    ]


@pytest.mark.parametrize("width", ["column", "page"])
def test_measured_values_stand_beside_those_of_the_paper(width: Width) -> None:
    runs = of_the_paper("onpro", 100, [55.0, 56.0, 57.0]) + of_the_paper("onpro", 200, [63.0])
    figure = drawn("paper", runs + of_the_paper("er", 200, [25.0, 26.0]), width=width)
    first, second = figure.axes
    titles = [axes.get_title("left").replace("\u00a0", " ") for axes in (first, second)]
    assert titles == ["cifar10, M = 100", "cifar10, M = 200"]
    assert [text.get_text() for text in first.get_yticklabels()] == ["ER", "OnPro"]
    points = [[np.asarray(line.get_xydata()).tolist() for line in a.lines] for a in figure.axes]
    assert points[0] == [[[56.0, 1.0]], [[57.8, 1.0]]]
    assert sorted(points[1]) == [[[20.9, 0.0]], [[25.5, 0.0]], [[63.0, 1.0]], [[65.5, 1.0]]]
    left, right = first.get_xlim()
    assert left == 0
    assert right > 65.5


def test_experiments_of_other_precisions_have_rows_beside_the_paper() -> None:
    runs = [of_the_paper("onpro", 200, [accuracy])[0] for accuracy in (60.0, 62.0)]
    runs[1].result.update(precision="bf16", experiment="onpro in another precision")
    runs[1].configuration["precision"] = "bf16"
    (axes,) = drawn("paper", runs + of_the_paper("er", 200, [25.0])).axes
    rows = [text.get_text() for text in axes.get_yticklabels()]
    assert rows == ["ER", "OnPro, bf16", "OnPro, fp32"]
    points = [np.asarray(line.get_xydata()).tolist() for line in axes.lines]
    assert sorted(at for ((value, at),) in points if value in (60.0, 62.0)) == [1.0, 2.0]


def test_runs_that_the_paper_does_not_have_stand_beside_nothing() -> None:
    with pytest.raises(UserError, match="the paper has no accuracy of any of these runs"):
        drawn("paper", [finished("er", 0)])


@pytest.mark.parametrize(
    ("title", "lines"),
    [
        ("relay-compressed-calibrated", ["relay-compressed-", "calibrated"]),
        ("memory 200 relay-calibrated", ["memory 200", "relay-calibrated"]),
    ],
)
def test_names_break_at_hyphens_only_if_they_are_longer_than_a_line(
    title: str, lines: list[str]
) -> None:
    assert wrapped(title, 20).splitlines() == lines
