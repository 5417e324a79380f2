"""Figures of trained networks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.experiments.grouping import found
from onpro.figures import FIGURES
from onpro.figures.gradcam import gradcam, plus_plus
from onpro.figures.models import load_model
from onpro.figures.style import Options
from onpro.methods import settings_for
from onpro.runs import run
from tests.tiny_runs import ER


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    out = tmp_path_factory.mktemp("runs")
    scr = replace(ER, method="scr", settings=settings_for("scr", "tiny"))
    configs = [ER, replace(ER, memory=30), scr]
    return found([run(replace(config, model="network"), out) for config in configs])


def of(experiments: list[Experiment], method: str) -> list[Experiment]:
    return [one for one in experiments if one.method == method]


def texts(figure: Figure) -> str:
    from matplotlib.text import Text

    figure.draw_without_rendering()
    return "\n".join(text.get_text() for text in figure.findobj(Text))


@pytest.mark.parametrize("projection", ["", "pca"])
def test_features_are_drawn_for_every_method(
    experiments: list[Experiment], projection: str
) -> None:
    figure = FIGURES["features"](experiments, Options(x=projection))
    shown = texts(figure)
    assert "stripes 0" in shown
    assert "crosses: classes of the last task" in shown
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert len(panels) == len(experiments)
    for axes in panels:
        assert sum(np.asarray(points.get_offsets()).shape[0] for points in axes.collections) == 48


def test_attention_has_a_row_for_each_task_and_a_column_for_each_network(
    experiments: list[Experiment],
) -> None:
    networks = of(experiments, "er")
    figure = FIGURES["attention"](networks, Options())
    assert len(figure.axes) == 3 * (1 + len(networks))
    assert "task 3" in texts(figure)


def test_a_method_without_class_scores_has_no_attention(experiments: list[Experiment]) -> None:
    with pytest.raises(UserError, match="predicts from its memory"):
        FIGURES["attention"](of(experiments, "scr"), Options())


@pytest.mark.parametrize("name", ["features", "attention"])
def test_a_run_without_a_model_is_told_how_to_keep_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--model --fresh"):
        FIGURES[name](found([run(ER, tmp_path)]), Options())


def test_the_map_is_that_of_the_definition() -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.rand(5, 3, 4, generator=generator, dtype=torch.float64)
    gradient = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    gradient[0, 0, 0] = 0
    expected = np.zeros((3, 4))
    for k in range(5):
        total = float(maps[k].sum())
        weight = 0.0
        for g in gradient[k].flatten().tolist():
            below = 2 * g**2 + g**3 * total
            weight += (g**2 / below if below else 0.0) * max(g, 0.0)
        expected += weight * maps[k].numpy()
    expected = np.maximum(expected, 0)
    expected = (expected - expected.min()) / (expected.max() - expected.min())
    np.testing.assert_allclose(plus_plus(maps, gradient).numpy(), expected, rtol=1e-9)


def test_a_map_has_the_size_of_the_image_and_does_not_change_the_network(
    experiments: list[Experiment],
) -> None:
    model = load_model(of(experiments, "er")[0])
    before = {name: value.clone() for name, value in model.method.network.state_dict().items()}
    heat, predicted = gradcam(model, model.test.images[0])
    assert heat.shape == model.test.images.shape[-2:]
    assert (float(heat.min()), float(heat.max())) in {(0.0, 1.0), (0.0, 0.0)}
    assert predicted == int(model.method.predict(model.test.images[:1]))
    after = model.method.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
