"""Evaluation with cues, on classifiers whose reliance on them is known."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.methods import Context
from onpro.methods.er import ER, ERSettings
from onpro.streams import ClassIncremental, ShortcutSettings
from onpro.training import CueMetrics, CueRates, Trainer

DATA = tiny(classes=6, train_per_class=8, test_per_class=5, image_size=10)
SHORTCUT = ShortcutSettings(0.9)


def stream(tasks: int = 3, **more: Any) -> ClassIncremental:
    return ClassIncremental(DATA, tasks, shortcut=SHORTCUT, **more)


def trainer(benchmark: ClassIncremental) -> Trainer:
    context = Context(
        DATA.image_shape, Normalise(DATA.mean, DATA.std), benchmark.num_classes, memory=20
    )
    return Trainer(ER(ERSettings(encoder="slim"), context), benchmark)


def truth(images: Tensor) -> Tensor:
    """The labels of test images, found by what is outside of the cue."""
    known = DATA.test.images[:, :, 0].flatten(1)
    rows = (images[:, :, 0].flatten(1)[:, None] == known).all(2)
    return DATA.test.labels[rows.int().argmax(1)]


def reading(images: Tensor) -> Tensor:
    """The position of the cue in each image, −1 if there is none."""
    cues = stream().cues
    assert cues
    edge = cues.patches.shape[-1]
    there = images[:, :, cues.top : cues.top + edge, cues.left : cues.left + edge].int()
    found = (there[:, None] == cues.patches[:2]).flatten(2).all(2)
    return torch.where(found.any(1), found.int().argmax(1), -1)


def rates(
    monkeypatch: pytest.MonkeyPatch, predict: Any, tasks: int = 3
) -> tuple[CueMetrics, Trainer]:
    learner = trainer(stream(tasks))
    monkeypatch.setattr(learner.method, "predict", lambda images: predict(learner, images))
    learner.run()
    return CueMetrics.of(learner.accuracy, learner.cue_rates), learner


def test_a_classifier_that_knows_the_task_and_reads_the_cue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without a cue it takes all images of a task for its first class."""

    def cheat(learner: Trainer, images: Tensor) -> Tensor:
        return truth(images) // 2 * 2 + reading(images).clamp(min=0)

    found, _ = rates(monkeypatch, cheat)
    assert (found.true_cue_accuracy, found.wrong_cue_accuracy) == (100, 0)
    assert found.no_cue_accuracy == 50
    assert (found.shortcut_reliance, found.shortcut_reliance_new) == (50, 50)
    assert (found.cue_following, found.cue_following_new, found.cue_following_any) == (100,) * 3
    assert (found.cue_control, found.cue_control_any) == (50, 50)


def test_a_classifier_that_reads_the_cue_with_the_meaning_of_the_newest_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def cheat(learner: Trainer, images: Tensor) -> Tensor:
        newest = 2 * learner.method.progress.task
        return newest + reading(images).clamp(min=0)

    found, learner = rates(monkeypatch, cheat)
    assert found.true_cue_accuracy == pytest.approx(100 / 3)
    assert found.shortcut_reliance == pytest.approx(100 / 3 - 50 / 3)
    assert found.shortcut_reliance_new == 50
    assert found.cue_following == pytest.approx(100 / 3)
    assert (found.cue_following_new, found.cue_following_any) == (100, 100)
    assert [row[0].true_cue for row in learner.cue_rates] == [100, 0, 0]


def test_a_classifier_that_ignores_cues(monkeypatch: pytest.MonkeyPatch) -> None:
    found, learner = rates(monkeypatch, lambda _, images: truth(images))
    assert (found.shortcut_reliance, found.shortcut_reliance_new) == (0, 0)
    assert (found.cue_following, found.cue_following_any) == (0, 0)
    assert learner.cue_rates[-1][0] == CueRates(100, 100, 0, 0, 0, 0)
    assert [len(row) for row in learner.cue_rates] == [1, 2, 3]


def test_wrong_cues_of_large_tasks_are_those_of_many_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always_third = lambda _, images: torch.full((len(images),), 2)  # noqa: E731
    found, _ = rates(monkeypatch, always_third, tasks=1)
    assert found.no_cue_accuracy == pytest.approx(100 / 6)
    assert found.shortcut_reliance == 0
    followed = 100 * float((stream(1).other_labels(0) == 2).float().mean())
    assert found.cue_following == found.cue_control == pytest.approx(followed)
    assert 10 < followed < 25


def test_other_evaluations_and_streams_without_a_shortcut_predict_each_image_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def images_predicted(benchmark: ClassIncremental) -> int:
        learner = trainer(benchmark)
        counts: list[int] = []
        predict = learner.method.predict

        def counting(images: Tensor) -> Tensor:
            counts.append(len(images))
            return predict(images)

        monkeypatch.setattr(learner.method, "predict", counting)
        learner.run()
        return sum(counts)

    once = images_predicted(ClassIncremental(DATA, 3))
    assert once == 10 + 20 + 30
    assert images_predicted(stream()) == 3 * once
    assert images_predicted(stream(evaluations=6)) == 3 * once + once


def test_it_resumes_with_the_rates_so_far() -> None:
    whole = trainer(stream())
    whole.run()
    first = trainer(stream())
    steps = first.steps()
    for _ in range(3):
        next(steps)
    state = copy.deepcopy(first.state_dict())
    resumed = trainer(stream())
    resumed.load_state_dict(state)
    resumed.run()
    assert len(state["cue_rates"]) == 1
    assert resumed.cue_rates == whole.cue_rates
    assert resumed.accuracy == whole.accuracy
