"""The model that a run keeps: a classifier that predicts as the run's method does."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
import torch

from onpro import OnlineClassifier
from onpro.errors import UserError
from onpro.files import replacing
from onpro.image_classifier import ImageClassifier
from onpro.methods import methods, settings_for
from onpro.runs import Interrupted, RunConfig, finished_in, prepare, read_config, run_in
from onpro.runs.config import KeptModel
from onpro.training import Trainer, statefile
from onpro.training.stepper import equal
from tests.tiny_runs import ER, lasting

KEPT = replace(ER, model="network")


TRAIN_AND_SAVE = """
import sys
from dataclasses import replace
from pathlib import Path
from onpro.runs import run_in
from tests.tiny_runs import ER

folder = Path(sys.argv[1])
run_in(folder, replace(ER, model="network"))
assert (folder / "model.onpro").exists()
assert "sklearn" not in sys.modules
"""


@pytest.mark.thorough
def test_a_run_does_not_import_scikit_learn(tmp_path: Path) -> None:
    """The import takes as long as that of torch."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", TRAIN_AND_SAVE, str(tmp_path / "run")]
    subprocess.run(command, check=True, cwd=root)


def images_of(trainer: Trainer) -> Any:
    """All test images of a run's stream."""
    stream = trainer.stream
    return torch.cat([stream.test(task).images for task in range(stream.num_tasks)])


def predicted(trainer: Trainer) -> list[str]:
    """The class names that the method of a run predicts for its test images."""
    return [trainer.stream.classes[k] for k in trainer.method.predict(images_of(trainer)).tolist()]


def trained(folder: Path, config: RunConfig) -> tuple[Trainer, OnlineClassifier]:
    """A run that is finished, and the classifier that it has left."""
    trainer = prepare(config)
    run_in(folder, config, trainer=trainer)
    return trainer, OnlineClassifier.from_run(folder)


@pytest.mark.parametrize("model", ["network", "memory"])
@pytest.mark.parametrize(
    "name", [*sorted(methods()), "er-kd", "er-rot", "er-mkd", "er-ccldc", "er-gwm"]
)
def test_it_predicts_as_the_method_of_the_run(tmp_path: Path, name: str, model: KeptModel) -> None:
    settings = settings_for(name, "tiny")
    config = replace(ER, method=name, settings=settings, class_order="random", model=model)
    trainer, classifier = trained(tmp_path / "run", config)
    images = images_of(trainer)
    assert classifier.predict(images).tolist() == predicted(trainer)
    assert classifier.classes_.tolist() == list(trainer.stream.classes)
    assert classifier.n_seen_ == 48

    classifier.partial_fit(images[:8], ["a class of its own"] * 8)
    classifier.partial_fit(images[8:16], predicted(trainer)[8:16])
    assert classifier.n_seen_ == 64
    assert len(classifier.predict(images)) == len(images)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["er", "onpro", "cope", "scr"])
def test_it_predicts_as_the_method_of_a_run_on_a_gpu(tmp_path: Path, name: str) -> None:
    settings = settings_for(name, "tiny")
    config = replace(ER, method=name, settings=settings, device="cuda", model="network")
    trainer, classifier = trained(tmp_path / "run", replace(config, precision="bf16"))
    assert classifier.predict(images_of(trainer)).tolist() == predicted(trainer)


def test_the_memory_is_kept_only_if_asked_for(tmp_path: Path) -> None:
    trainer, classifier = trained(tmp_path / "without", KEPT)
    assert len(classifier.memory_.labels) == 0
    assert len(trainer.method.memory) == 20, "the run's own memory is left alone"

    trainer, classifier = trained(tmp_path / "with", replace(ER, model="memory"))
    names = [trainer.stream.classes[k] for k in trainer.method.memory.labels.tolist()]
    assert classifier.memory_.labels.tolist() == names
    stored = trainer.method.memory.images.permute(0, 2, 3, 1).numpy()
    assert np.array_equal(classifier.memory_.images, stored)


def test_with_the_memory_learning_goes_on_exactly(tmp_path: Path) -> None:
    trainer, classifier = trained(tmp_path / "run", replace(ER, model="memory"))
    batch = next(iter(prepare(replace(ER, seed=1)).stream))
    names = [trainer.stream.classes[k] for k in batch.labels.tolist()]
    classifier.partial_fit(batch.images, names)
    trainer.stepper.step(replace(batch, task=None))
    assert classifier._model
    ours, its = classifier._model.method, trainer.method
    for part in ("network", "optimizer", "memory"):
        assert equal(getattr(ours, part).state_dict(), getattr(its, part).state_dict()), part


def test_classes_may_arrive_in_another_order_than_they_are_numbered(tmp_path: Path) -> None:
    config = replace(KEPT, batch_size=1, hide_boundaries=True)
    trainer, classifier = trained(tmp_path / "run", config)
    before = trainer.method.progress.seen_before_task
    assert before != set(range(len(before))), "the last class to arrive has not the last number"
    assert classifier.predict(images_of(trainer)).tolist() == predicted(trainer)


def test_images_of_any_size_are_resized_to_those_of_the_run(tmp_path: Path) -> None:
    _, classifier = trained(tmp_path / "run", KEPT)
    assert len(classifier.predict(np.zeros((2, 40, 30, 3), dtype=np.uint8))) == 2


def test_it_changes_nothing_in_the_result(tmp_path: Path) -> None:
    plain = run_in(tmp_path / "plain", ER)
    kept = run_in(tmp_path / "kept", KEPT)
    assert lasting(kept.result) == lasting(plain.result)
    assert KEPT.identity == ER.identity
    names = {path.name for path in kept.folder.iterdir()}
    assert names - {path.name for path in plain.folder.iterdir()} == {"model.onpro"}
    ours, its = (json.loads((r.folder / "config.json").read_text()) for r in (kept, plain))
    assert ours == its | {"model": "network", "started": ours["started"]}


def test_a_run_that_goes_on_keeps_what_it_was_begun_to_keep(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config = replace(ER, model="memory")
    trainer = prepare(config)
    with pytest.raises(Interrupted):
        run_in(
            folder,
            config,
            trainer=trainer,
            stop=lambda: signal.SIGTERM if trainer.stream.position >= 3 else None,
        )
    assert not (folder / "model.onpro").exists()
    assert read_config(folder) == config
    again, classifier = prepare(config), OnlineClassifier
    run_in(folder, read_config(folder), trainer=again)
    assert classifier.from_run(folder).predict(images_of(again)).tolist() == predicted(again)


def test_a_repetition_replaces_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_in(folder, KEPT)
    before = (folder / "model.onpro").read_bytes()
    run_in(folder, replace(ER, model="memory"), fresh=True)
    assert (folder / "model.onpro").read_bytes() != before
    run_in(folder, ER, fresh=True)
    assert not (folder / "model.onpro").exists(), "the model of a run that is no more"
    assert finished_in(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run_in(folder, KEPT)
    (folder / "model.onpro").rename(tmp_path / "elsewhere")
    (folder / "model.onpro").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"model\.onpro is a link"):
        run_in(folder, KEPT, fresh=True)


def test_a_folder_in_its_place_is_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(UserError, match=r"model\.onpro is a folder"):
        run_in(folder, KEPT, listeners=[Making(folder / "model.onpro")])


class Making:
    """A listener that makes a folder after each task."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_step(self, step: Any) -> None:
        pass

    def on_evaluation(self, evaluated: Any) -> None:
        self.folder.mkdir(exist_ok=True)


def test_a_full_disk_is_a_sentence_and_the_run_can_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "Run"

    @contextmanager
    def full(path: Path, **how: Any) -> Iterator[BinaryIO]:
        if path.name == "model.onpro":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        with replacing(path, **how) as file:
            yield file

    monkeypatch.setattr(statefile, "replacing", full)
    with pytest.raises(UserError, match="no space left on device") as told:
        run_in(folder, KEPT)
    assert f"its checkpoint of step 6 is kept in {folder}" in str(told.value)
    assert not (folder / "result.json").exists()

    monkeypatch.undo()
    done = run_in(folder, KEPT)
    assert lasting(done.result) == lasting(run_in(tmp_path / "other", ER).result)
    assert (folder / "model.onpro").exists()


def test_a_compressed_memory_with_outputs_is_kept(tmp_path: Path) -> None:
    """It holds fewer images in a run than in a classifier, which knows no number of outputs."""
    name = "derpp-compressed"
    config = replace(ER, method=name, settings=settings_for(name, "tiny"), model="memory")
    done = run_in(tmp_path / "run", config)
    classifier = OnlineClassifier.from_run(done.folder)
    kept = classifier.memory_.images
    assert len(kept) == sum(done.result["memory_content"][-1])
    classifier.save(tmp_path / "a.onpro")
    assert np.array_equal(OnlineClassifier.load(tmp_path / "a.onpro").memory_.images, kept)


def test_a_model_that_no_classifier_takes_over_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*given: Any) -> None:
        raise ValueError("the method's parts")

    monkeypatch.setattr(ImageClassifier, "from_state", refuse)
    with caplog.at_level(logging.WARNING):
        done = run_in(tmp_path / "run", KEPT)
    assert "the model of er is not kept: the method's parts" in caplog.text
    assert finished_in(done.folder)
    assert not (done.folder / "model.onpro").exists()


def test_what_from_run_cannot_load_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        OnlineClassifier.from_run(tmp_path / "nowhere")
    done = run_in(tmp_path / "run", ER)
    with pytest.raises(FileNotFoundError, match=r"has no model\.onpro"):
        OnlineClassifier.from_run(done.folder)
    (done.folder / "model.onpro").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="is not a file that onpro saved"):
        OnlineClassifier.from_run(done.folder)
    with pytest.raises(ValueError, match="is the folder of a run: use from_run"):
        OnlineClassifier.load(done.folder)
