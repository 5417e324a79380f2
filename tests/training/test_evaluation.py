"""The confusion matrix against a plain loop, and accuracies read off it."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.imageset import Split
from onpro.data.tiny import tiny
from onpro.methods import Context
from onpro.methods.er import ER, ERSettings
from onpro.streams import ClassIncremental
from onpro.training import accuracies, confusion_matrix, evaluation
from onpro.training.stepper import Stepper

DATA = tiny(classes=4, train_per_class=5, test_per_class=9, image_size=8)


@pytest.fixture(scope="module")
def method() -> ER:
    context = Context(DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=4)
    learner = ER(ERSettings(encoder="slim"), context)
    stepper = Stepper(learner)
    for batch in ClassIncremental(DATA, 2):
        stepper.step(batch)
    return learner


def counted(method: ER, splits: list[Split]) -> list[list[int]]:
    counts = [[0] * 4 for _ in range(4)]
    for split in splits:
        for image, label in zip(split.images, split.labels.tolist(), strict=True):
            counts[label][int(method.predict(image[None]))] += 1
    return counts


@pytest.mark.parametrize("at_once", [1000, 7])
def test_every_image_is_counted_once(
    method: ER, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(evaluation, "TEST_BATCH", at_once)
    stream = ClassIncremental(DATA, 2)
    splits = [stream.test(0), stream.test(1)]
    confusion = confusion_matrix(method, splits, 4)
    assert confusion.tolist() == counted(method, splits)
    assert confusion.sum(dim=1).tolist() == [9, 9, 9, 9]


@pytest.mark.parametrize(
    ("at_once", "predicted"), [(1000, [36]), (20, [18, 18]), (7, [7, 7, 4] * 2)]
)
def test_small_tasks_are_predicted_together(
    method: ER, monkeypatch: pytest.MonkeyPatch, at_once: int, predicted: list[int]
) -> None:
    monkeypatch.setattr(evaluation, "TEST_BATCH", at_once)
    predict, sizes = method.predict, []

    def noting(images: Tensor) -> Tensor:
        sizes.append(len(images))
        return predict(images)

    monkeypatch.setattr(method, "predict", noting)
    stream = ClassIncremental(DATA, 2)
    confusion_matrix(method, [stream.test(0), stream.test(1)], 4)
    assert sizes == predicted


def test_full_batches_are_predicted_before_others_are_loaded(
    method: ER, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "TEST_BATCH", 18)
    events: list[str] = []
    predict = method.predict

    def noting(images: Tensor) -> Tensor:
        events.append("predicted")
        return predict(images)

    def splits() -> Iterator[Split]:
        for task in range(2):
            events.append("loaded")
            yield stream.test(task)

    monkeypatch.setattr(method, "predict", noting)
    stream = ClassIncremental(DATA, 2)
    confusion_matrix(method, splits(), 4)
    assert events == ["loaded", "predicted"] * 2


def test_classes_that_are_not_examined_have_empty_rows(method: ER) -> None:
    confusion = confusion_matrix(method, [ClassIncremental(DATA, 2).test(0)], 4)
    assert confusion.sum(dim=1).tolist() == [9, 9, 0, 0]


def test_no_image_no_count(method: ER) -> None:
    assert confusion_matrix(method, [], 4).tolist() == [[0] * 4] * 4


def test_evaluating_leaves_the_network_in_train_mode(method: ER) -> None:
    confusion_matrix(method, [DATA.test], 4)
    assert method.network.training


def matrix(*rows: list[int]) -> Tensor:
    return torch.tensor(rows)


def test_accuracy_of_a_task_counts_its_images_whatever_they_are_taken_for() -> None:
    confusion = matrix([3, 1, 0, 0], [0, 4, 0, 2], [0, 0, 0, 5], [1, 1, 0, 0])
    assert accuracies(confusion, [(0, 1), (2, 3)]) == [70.0, 0.0]
    assert accuracies(confusion, [(0, 1, 2, 3)]) == [pytest.approx(700 / 17)]


def test_accuracies_are_exact_percentages() -> None:
    assert accuracies(matrix([19, 1], [0, 20]), [(0,), (1,)]) == [95.0, 100.0]
