"""`onpro predict`: image files and the model that a run has kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onpro import OnlineClassifier
from onpro.data import load
from tests.cli.conftest import Command

TINY = ["--data", "tiny", "--limit-per-class", "6", "--device", "cpu", "--out", "out"]


@pytest.fixture
def run(onpro: Command, tmp_path: Path) -> str:
    """A finished run, and images of the data set as files."""
    assert onpro("run", "er", *TINY).status == 0
    data = load("tiny").test
    for number, image in enumerate(data.images[:4]):
        path = tmp_path / "images" / ("sub" if number == 3 else "") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    (folder,) = (tmp_path / "out").iterdir()
    return f"out/{folder.name}"


def test_files_are_classified(onpro: Command, run: str, tmp_path: Path) -> None:
    answer = onpro("predict", run, "images/0.png", "images/2.png", "--json", "--device", "cpu")
    assert answer.status == 0
    found: list[dict[str, Any]] = json.loads(answer.out)
    assert [entry["file"] for entry in found] == ["images/0.png", "images/2.png"]
    classifier = OnlineClassifier.from_run(tmp_path / run)
    images = np.stack([np.array(Image.open(tmp_path / entry["file"])) for entry in found])
    assert [entry["class"] for entry in found] == classifier.predict(images).tolist()
    probabilities = classifier.predict_proba(images).max(axis=1)
    assert [entry["probability"] for entry in found] == pytest.approx(probabilities)

    answer = onpro("predict", run, "images/0.png")
    assert "images/0.png" in answer.out
    assert found[0]["class"] in answer.out
    assert "probability" in answer.out


def test_a_folder_stands_for_its_images(onpro: Command, run: str, tmp_path: Path) -> None:
    (tmp_path / "images" / "notes.txt").write_text("no image")
    (tmp_path / "images" / ".hidden.png").write_bytes(b"no image")
    found = json.loads(onpro("predict", run, "images", "--json").out)
    names = ["images/0.png", "images/1.png", "images/2.png", "images/sub/3.png"]
    assert [entry["file"] for entry in found] == names


def test_an_image_that_cannot_be_read_is_named_and_the_others_classified(
    onpro: Command, run: str, tmp_path: Path
) -> None:
    (tmp_path / "images" / "1.png").write_bytes(b"no image")
    answer = onpro("predict", run, "images", "--json")
    assert answer.status == 1
    assert len(json.loads(answer.out)) == 3
    assert "the image images/1.png cannot be read" in answer.err

    answer = onpro("predict", run, "gone.png", "images/2.png", "--json")
    assert answer.status == 1
    assert len(json.loads(answer.out)) == 1
    assert answer.err == "onpro: there is no image gone.png.\n"

    answer = onpro("predict", run, "images/1.png")
    assert answer.status == 2
    assert not answer.out
    assert answer.err.count("\n") == 1


def test_mistakes_are_sentences(onpro: Command, run: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    model = tmp_path / run / "model.onpro"
    for arguments, sentence in (
        (["nowhere", "images"], "there is no folder nowhere."),
        (["images", "images"], "images is not the folder of a run: it has no config.json."),
        ([run, "nothing.png"], "there is no image nothing.png."),
        ([run, "empty"], "the folder empty has no image file."),
        ([run, run], f"{run} is a run: name one run, then images."),
        ([run], "name at least one image file, or a folder that has some."),
    ):
        answer = onpro("predict", *arguments)
        assert (answer.status, answer.err) == (2, f"onpro: {sentence}\n")
    model.write_bytes(model.read_bytes()[:-1])
    assert "is damaged" in onpro("predict", run, "images").err
    model.unlink()
    answer = onpro("predict", run, "images")
    assert answer.status == 2
    assert answer.err.startswith(f"onpro: {run} has kept no model: ")
    (tmp_path / run / "result.json").unlink()
    assert onpro("predict", run, "images").err.startswith(f"onpro: {run} is not finished: ")


def test_a_run_keeps_its_model_unless_told_otherwise(onpro: Command, tmp_path: Path) -> None:
    assert onpro("run", "er", *TINY, "--no-model").status == 0
    assert not list(tmp_path.glob("out/*/model.onpro"))
    assert onpro("run", "er", *TINY, "--keep-memory", "--fresh").status == 0
    (model,) = tmp_path.glob("out/*/model.onpro")
    assert len(OnlineClassifier.load(model).memory_.labels) > 0
    answer = onpro("run", "er", *TINY, "--no-model", "--keep-memory")
    assert answer.status == 2
    assert "--keep-memory keeps images with the model" in answer.err


def test_networks_after_tasks_and_prototypes_are_kept_if_asked_for(
    onpro: Command, tmp_path: Path
) -> None:
    options = ("--keep-model", "tasks", "--probe", "prototypes", "--probe-every", "2")
    assert onpro("run", "er", *TINY, *options).status == 0
    kept = sorted(path.name for path in tmp_path.rglob("*.onpro"))
    assert kept[0] == "model.onpro"
    assert kept[1:] == [f"network-{task}.onpro" for task in range(1, len(kept))]
    (result,) = tmp_path.rglob("result.json")
    steps = json.loads(result.read_text())["prototypes"]["step"]
    assert steps == list(range(2, steps[-1] + 1, 2))
    answer = onpro("run", "pass", *TINY, *options)
    assert answer.status == 2
    assert "pass keeps no images" in answer.err
    answer = onpro("figure", "features", str(tmp_path), "--after", "1;2")
    assert answer.status == 2
    assert "--after takes comma-separated whole numbers from 1, not '1;2'" in answer.err


@pytest.mark.thorough
@pytest.mark.parametrize(("options", "kept"), [([], 0), (["--model"], 2)])
def test_tables_and_sweeps_keep_models_only_if_asked_for(
    onpro: Command, tmp_path: Path, options: list[str], kept: int
) -> None:
    (tmp_path / "sweep.toml").write_text(
        '[[runs]]\nmethod = "er"\ndata = "tiny"\nmemory = 20\nlimit_per_class = 6\n'
    )
    common = ["--out", "many", "--device", "cpu", "--workers", "1", *options]
    assert onpro("sweep", "sweep.toml", *common).status == 0
    part = ["--data", "tiny", "--methods", "er", "--memory", "20", "--seed", "1", "--seeds", "1"]
    assert onpro("table", "table1", *part, "--limit-per-class", "6", *common).status == 0
    assert len(list(tmp_path.glob("many/*/model.onpro"))) == kept
