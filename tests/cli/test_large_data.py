"""Runs on images that are decoded while the run trains."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from onpro.data import load, workers
from onpro.data.lazy import LIMIT
from onpro.methods import settings_for
from onpro.runs import RunConfig, prepare
from tests.cli.conftest import Command
from tests.cli.test_resume import EVERY_STEP, Running, newest, result_of, wait_for_progress
from tests.data.made_up_imagenet import write_imagenet
from tests.tiny_runs import lasting


@pytest.fixture
def birds(tmp_path: Path) -> Path:
    """Three classes of 30 noisy images each."""
    root = tmp_path / "birds"
    random = np.random.default_rng(0)
    for level, name in enumerate(("crane", "owl", "wren")):
        (root / name).mkdir(parents=True)
        for k in range(30):
            pixels = random.integers(60 * level, 60 * level + 100, (20, 16, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{k:02}.png")
    return root


def folder_run(birds: Path) -> RunConfig:
    data = f"folder:{birds}"
    settings = settings_for("er", data)
    return RunConfig("er", settings, data=data, tasks=3, image_size=12, device="cpu")


@pytest.mark.thorough
def test_both_ways_train_the_same_network(birds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "cores", lambda: 3)
    monkeypatch.setattr(workers, "WORTH_A_WORKER", 30)
    trained = []
    for limit in ("1", "0"):
        monkeypatch.setenv(LIMIT, limit)
        trainer = prepare(folder_run(birds))
        trainer.run()
        trained.append(trainer)
    in_memory, as_needed = trained
    assert as_needed.accuracy == in_memory.accuracy
    assert as_needed.confusion.equal(in_memory.confusion)
    expected = in_memory.method.network.state_dict()
    for name, weights in as_needed.method.network.state_dict().items():
        assert weights.equal(expected[name])


FOLDER = ["--data", "folder:birds", "--image-size", "12", "--tasks", "3", "--device", "cpu"]


def test_a_folder_run_says_what_it_found(
    onpro: Command, birds: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = onpro("run", "er", *FOLDER, "--limit-per-class", "5", "--json")
    assert answer.status == 0
    assert "3 classes, 72 training + 18 test images" in caplog.text
    assert "(crane 24 + 6, owl 24 + 6, wren 24 + 6)" in caplog.text
    assert json.loads(answer.out)["steps"] == 3


def test_a_folder_without_its_prefix_is_suggested(onpro: Command, birds: Path) -> None:
    answer = onpro("run", "er", "--data", "birds")
    assert answer.status == 2
    assert answer.err.strip() == (
        "onpro: there is no data set 'birds'; for the folder write folder:birds."
    )


def test_an_image_that_breaks_in_mid_run_ends_it_resumably(
    onpro: Command,
    birds: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = load(f"folder:{birds}", image_size=12)
    expected = json.loads(onpro("run", "er", *FOLDER, "--out", "whole", "--json").out)
    file = birds / "wren" / "07.png"  # of the last task
    content = file.read_bytes()
    middle = len(content) // 2
    file.write_bytes(content[:middle] + bytes(20) + content[middle + 20 :])
    monkeypatch.setenv(LIMIT, "0")
    monkeypatch.setattr("onpro.data.folder.measured", lambda _: (data.mean, data.std))
    answer = onpro("run", "er", *FOLDER, "--checkpoint-every", "0")
    assert answer.status == 2
    sentence = answer.err.splitlines()[-1]
    assert f"the image {file} cannot be read" in sentence
    assert "its checkpoint of step 6 is kept in runs/er-folder_birds" in sentence
    file.write_bytes(content)
    monkeypatch.undo()
    monkeypatch.chdir(birds.parent)
    (folder,) = Path("runs").iterdir()
    resumed = onpro("resume", str(folder), "--json")
    assert "resumes from step 6" in caplog.text
    result: dict[str, Any] = json.loads(resumed.out)
    expected.pop("run"), result.pop("run")
    assert lasting(result) == lasting(expected)


IMAGENET = [
    "--data", "imagenet100", "--data-dir", "data", "--image-size", "16", "--encoder", "slim",
    "--tasks", "2", "--batch-size", "4", "--memory", "20", "--device", "cpu",
]  # fmt: skip


@pytest.mark.thorough
def test_a_run_on_imagenet_that_is_killed_ends_the_same(
    tmp_path: Path,
    onpro: Command,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(LIMIT, "0.000001")
    write_imagenet(tmp_path / "data", train=2, test=1)
    whole = onpro("run", "er", *IMAGENET, "--out", "whole", "--json")
    assert whole.status == 0, whole.err
    assert "the 200 training images of imagenet100 take" in caplog.text
    start = ["run", "er", *IMAGENET]
    for kill in range(2):
        with Running(tmp_path, *start, *EVERY_STEP) as started:
            wait_for_progress(started)
            started.send(signal.SIGKILL)
            assert started.status() == -signal.SIGKILL
        assert newest(tmp_path) > kill, "in mid-task"
    with Running(tmp_path, *start) as started:
        assert started.status() == 0, started.said()
        assert "resumes from step" in started.said()
    expected = json.loads(whole.out)
    expected.pop("run")
    assert result_of(tmp_path) == lasting(expected)
