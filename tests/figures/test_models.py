"""Figures of trained networks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from onpro.errors import UserError
from onpro.experiments.experiment import Experiment
from onpro.experiments.grouping import found
from onpro.figures import FIGURES, projections
from onpro.figures import gradcam as gradcam_module
from onpro.figures.gradcam import gradcam, plus_plus
from onpro.figures.models import load_models
from onpro.figures.projections import FEW, projected
from onpro.figures.style import Options, names_of
from onpro.methods import method, settings_for
from onpro.nn import ENCODERS, Encoder, EncoderKind
from onpro.runs import run
from tests.tiny_runs import ER


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    out = tmp_path_factory.mktemp("runs")
    scr = replace(ER, method="scr", settings=settings_for("scr", "tiny"))
    configs = [ER, replace(ER, memory=30), scr]
    kept = [replace(config, model="network", task_networks=True) for config in configs]
    return found([run(config, out) for config in kept])


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
    assert "crosses: classes of the task" in shown
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


@pytest.mark.parametrize("name", ["gdumb", "er-calibrated"])
def test_attention_shows_networks_that_learn_or_predict_with_the_memory(
    name: str, tmp_path: Path
) -> None:
    config = replace(ER, method=name, settings=settings_for(name, "tiny"), model="network")
    figure = FIGURES["attention"](found([run(config, tmp_path)]), Options())
    assert len(figure.axes) == 3 * 2


def test_attention_is_that_of_the_predictor_whatever_the_scores_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method("er-mkd"), "eval_scores", lambda self, images: self.network(images))
    settings = settings_for("er-mkd", "tiny")
    config = replace(ER, method="er-mkd", settings=settings, model="network")
    figure = FIGURES["attention"](found([run(config, tmp_path)]), Options())
    assert len(figure.axes) == 3 * 2


def test_more_networks_than_fit_are_below_each_other(
    experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradcam_module, "MOST_COLUMNS", {"page": 1})
    networks = of(experiments, "er")
    figure = FIGURES["attention"](networks, Options())
    shown = [axes.get_title().replace("\n", " ") for axes in figure.axes if axes.get_title()]
    assert [title.replace("\u00a0", " ") for title in shown] == names_of(networks)[0]
    assert len(figure.axes) == 2 * 3 * 2


def test_a_method_without_class_scores_has_no_attention(
    experiments: list[Experiment], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match="predicts the nearest mean"):
        FIGURES["attention"](of(experiments, "scr"), Options())
    FIGURES["attention"](experiments, Options())
    (message,) = caplog.messages
    assert message.startswith("left out: scr, ")


def test_an_encoder_without_feature_maps_has_no_attention(
    experiments: list[Experiment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Flat(Encoder):
        out_features = 3 * 12 * 12

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.flatten(1)

    monkeypatch.setitem(ENCODERS, "flat", EncoderKind(lambda _: Flat(), minimum_side=1))
    config = replace(ER, settings=replace(ER.settings, encoder="flat"), model="network")
    flat = found([run(config, tmp_path)])
    with pytest.raises(UserError, match=r"encoder=flat.* computes no feature maps"):
        FIGURES["attention"](flat, Options())
    networks = of(experiments, "er")
    figure = FIGURES["attention"]([*flat, *networks], Options())
    assert len(figure.axes) == 3 * (1 + len(networks))
    (message,) = caplog.messages
    assert message.startswith("left out: the encoder of er, encoder=flat")


@pytest.mark.parametrize("name", ["features", "attention"])
def test_an_experiment_whose_images_are_gone_is_left_out(
    experiments: list[Experiment], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photos = tmp_path / "photos"
    for k in range(6):
        for n in range(3):
            (photos / f"kind{k}").mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (40 * k, 0, 80 * n)).save(photos / f"kind{k}" / f"{n}.png")
    other = replace(
        ER, data=f"folder:{photos}", image_size=8, model="network", limit_per_class=None
    )
    lost = found([run(other, tmp_path / "runs")])
    photos.rename(tmp_path / "elsewhere")
    caplog.clear()
    options = Options(x="" if name == "attention" else "pca")
    FIGURES[name]([*of(experiments, "er"), *lost], options)
    (message,) = (said for said in caplog.messages if said.startswith("left out"))
    assert "photos does not exist" in message
    with pytest.raises(UserError, match="photos does not exist"):
        FIGURES[name](lost, options)


@pytest.mark.parametrize("name", ["features", "attention"])
def test_a_run_without_a_model_is_told_how_to_keep_one(
    experiments: list[Experiment], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    without = found([run(replace(ER, memory=31), tmp_path)])
    with pytest.raises(UserError, match="--keep-model end --fresh"):
        FIGURES[name](without, Options(x=""))
    FIGURES[name](
        [*of(experiments, "er"), *without], Options(x="" if name == "attention" else "pca")
    )
    (message,) = caplog.messages
    assert message.startswith("left out: no run of er, limit_per_class=8, tiny, M = 31 has kept")


def test_features_after_tasks_show_the_classes_learned_by_then(
    experiments: list[Experiment],
) -> None:
    figure = FIGURES["features"](experiments, Options(after=(1, 3), x="pca"))
    shown = texts(figure)
    assert "after task 1" in shown
    assert "after task 3" in shown
    points = [
        sum(len(np.asarray(drawn.get_offsets())) for drawn in axes.collections)
        for axes in figure.axes
    ]
    assert points == [16] * 3 + [48] * 3
    crosses = [
        sum(
            len(np.asarray(drawn.get_offsets()))
            for drawn in axes.collections
            if not drawn.get_paths()[0].should_simplify and len(drawn.get_paths()[0]) == 4
        )
        for axes in figure.axes
    ]
    assert crosses == [16] * 6, "the two classes of the task learned last"


def test_tasks_are_columns_where_there_are_many_experiments(
    experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "MOST_COLUMNS", {"page": 2})
    figure = FIGURES["features"](experiments, Options(after=(1, 3), x="pca"))
    above = [axes.get_title(loc="left") for axes in figure.axes]
    assert above == ["after task 1", "after task 3", "", "", "", ""]
    left = [axes.get_ylabel().replace("\n", " ").replace("\u00a0", " ") for axes in figure.axes]
    assert left[::2] == names_of(experiments)[0]


def test_networks_after_a_task_are_those_of_the_run(experiments: list[Experiment]) -> None:
    ((_, models),) = load_models(of(experiments, "er")[:1], after=[1, 2, 3])
    assert [model.learned for model in models] == [1, 2, 3]
    assert [sorted(model.newest) for model in models] == [[0, 1], [2, 3], [4, 5]]
    accuracy = of(experiments, "er")[0].runs[0].result["accuracy"]
    for model, row in zip(models, accuracy, strict=True):
        for task in range(model.learned):
            test = model.stream.test(task)
            right = (model.method.predict(test.images) == test.labels).double().mean()
            assert 100 * float(right) == pytest.approx(row[task])


def test_tasks_that_were_not_kept_or_do_not_exist_are_told(
    experiments: list[Experiment], tmp_path: Path
) -> None:
    only_end = found([run(replace(ER, model="network"), tmp_path)])
    with pytest.raises(UserError, match=r"after task 1: train it again .* --keep-model tasks"):
        FIGURES["features"](only_end, Options(after=(1,)))
    with pytest.raises(UserError, match="has tasks 1 to 3, not 4"):
        FIGURES["features"](experiments, Options(after=(4,)))
    with pytest.raises(UserError, match="projected by tsne or pca"):
        FIGURES["features"](experiments, Options(x="umap"))
    with pytest.raises(UserError, match="last or fine"):
        FIGURES["attention"](experiments, Options(x="first"))


def test_a_model_of_another_version_is_a_sentence(tmp_path: Path) -> None:
    done = run(replace(ER, model="network", task_networks=True), tmp_path)
    for name in ("model.onpro", "network-1.onpro"):
        content = (done.folder / name).read_bytes()
        (done.folder / name).write_bytes(content.replace(b"onpro state 1", b"onpro state 9", 1))
    for after in ((), (1,)):
        with pytest.raises(UserError, match="newer version of onpro"):
            FIGURES["features"](found([done]), Options(after=after))
    config = done.folder / "config.json"
    config.write_text(config.read_text().replace('"weight_decay"', '"weight_decline"'))
    with pytest.raises(UserError, match=r"config\.json cannot be used"):
        FIGURES["attention"](found([done]), Options())


def test_a_task_of_one_class(tmp_path: Path) -> None:
    config = replace(ER, tasks=6, batch_size=4, model="network", task_networks=True)
    experiments = found([run(config, tmp_path)])
    shown = texts(FIGURES["features"](experiments, Options(after=(1,))))
    assert "stripes 0" in shown
    assert "stripes 1" not in shown
    assert "task 6" in texts(FIGURES["attention"](experiments, Options()))


def test_many_classes_are_shades_of_their_tasks(
    experiments: list[Experiment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projections, "FEW", 5)
    figure = FIGURES["features"](experiments[:1], Options(x="pca", after=(2, 3)))
    assert "task of the class" in texts(figure)
    assert not figure.legends[0].get_texts()


@pytest.mark.parametrize("count", [1, 2, 4, 40])
def test_any_number_of_images_is_projected(count: int) -> None:
    values = np.random.default_rng(0).normal(size=(count, 7))
    for how in ("tsne", "pca"):
        flat = projected(values, how)
        assert flat.shape == (count, 2)
        assert np.isfinite(flat).all()


def test_all_networks_are_shown_the_same_image(experiments: list[Experiment]) -> None:
    networks = of(experiments, "er")
    models = [model for _, (model,) in load_models(networks)]
    figure = FIGURES["attention"](networks, Options(x="fine"))
    for task in range(3):
        row = figure.axes[3 * task : 3 * task + 3]
        shown = [np.asarray(axes.get_images()[0].get_array()) for axes in row]
        assert all(np.array_equal(image, shown[0]) for image in shown)
        test = models[0].stream.test(task)
        right = torch.stack([m.method.predict(test.images) == test.labels for m in models]).sum(0)
        first = int((right[:50] == right[:50].max()).nonzero()[0])
        assert np.array_equal(shown[0], test.images[first].permute(1, 2, 0).numpy())


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
    ((_, (model,)),) = load_models(of(experiments, "er")[:1])
    images = model.stream.test(0).images
    before = {name: value.clone() for name, value in model.method.network.state_dict().items()}
    heat, predicted = gradcam(model.method, images[0])
    assert heat.shape == images.shape[-2:]
    assert (float(heat.min()), float(heat.max())) in {(0.0, 1.0), (0.0, 0.0)}
    assert predicted == int(model.method.predict(images[:1]))
    after = model.method.network.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.thorough  # importing it takes long
@pytest.mark.parametrize(("fine", "layer"), [(False, "bn3"), (True, "bn2")])
def test_the_map_is_that_of_pytorch_grad_cam(
    experiments: list[Experiment], fine: bool, layer: str
) -> None:
    from pytorch_grad_cam import GradCAMPlusPlus
    from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

    ((_, (model,)),) = load_models(of(experiments, "er")[:1])
    method, network = model.method, model.method.network.eval()
    with torch.no_grad():
        network.classifier.weight.mul_(1e3)  # it adds 1e-6 to denominators, little beside these
    drawn = 0
    for image in model.stream.test(0).images[:6]:
        heat, predicted = gradcam(method, image, fine=fine)
        layers = [getattr(network.encoder, layer)]
        with GradCAMPlusPlus(model=network, target_layers=layers) as reference:
            expected = reference(
                input_tensor=method.normalise(image[None]),
                targets=[ClassifierOutputTarget(predicted)],
            )[0]
        np.testing.assert_allclose(heat.numpy(), expected, atol=2e-3)
        drawn += bool(heat.max() > 0)
    assert drawn >= 3, "maps of zeros would agree too"


def test_ten_classes_have_ten_colours() -> None:
    assert len({projections._handle(number).get_color() for number in range(10)}) == 10
    marks = [(h.get_color(), h.get_marker()) for h in map(projections._handle, range(FEW))]
    assert len(set(marks)) == FEW
