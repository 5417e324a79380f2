"""The training loop: when it evaluates, what it reports, and that it resumes anywhere."""

import copy
import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.imageset import Split
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context, method, settings_for
from onpro.methods.er import ER, ERSettings
from onpro.methods.registry import AnyMethod
from onpro.streams import ClassIncremental
from onpro.training import EvaluationEvent, StepEvent, Trainer
from onpro.training.stepper import equal

DATA = tiny(classes=6, train_per_class=8, test_per_class=5, image_size=8)
TASKS = 3
STEPS = [2, 4, 6]
"""Steps taken at the end of each task: 16 images a task, batches of 10."""


class Notes:
    """Notes everything it is told, and the trainer's state then."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.steps: list[StepEvent] = []
        self.evaluations: list[EvaluationEvent] = []
        self.states: list[dict[str, Any]] = []

    def on_step(self, step: StepEvent) -> None:
        self.steps.append(step)
        self._save()

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        self.evaluations.append(evaluated)
        self._save()

    def _save(self) -> None:
        if self.trainer:
            self.states.append(copy.deepcopy(self.trainer.state_dict()))


class Counting(ER):
    """ER that adds up the steps at which each task ends."""

    def __init__(self, settings: ERSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.closed = torch.zeros(TASKS, dtype=torch.int64)

    def end_task(self) -> None:
        self.closed[self.progress.task] += self.progress.steps


def build(cls: type[AnyMethod] = ER, name: str = "er") -> AnyMethod:
    context = Context(
        DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=6, memory=20, seed=3
    )
    return cls(settings_for(name, "tiny"), context)


def trainer_of(learner: AnyMethod, notes: Notes, log_every: int = 50) -> Trainer:
    return Trainer(learner, ClassIncremental(DATA, TASKS), listeners=[notes], log_every=log_every)


@pytest.fixture(scope="module")
def told() -> tuple[Trainer, Notes]:
    notes = Notes()
    trainer = trainer_of(build(Counting), notes)
    trainer.run()
    return trainer, notes


def test_all_tasks_so_far_are_evaluated_after_each(told: tuple[Trainer, Notes]) -> None:
    trainer, notes = told
    assert [len(row) for row in trainer.accuracy] == [1, 2, 3]
    assert [e.accuracy for e in notes.evaluations] == trainer.accuracy
    assert [(e.task, e.step) for e in notes.evaluations] == list(enumerate(STEPS))
    assert all(0 <= value <= 100 for row in trainer.accuracy for value in row)


def test_the_last_confusion_matrix_covers_all_test_images(told: tuple[Trainer, Notes]) -> None:
    trainer, _ = told
    assert trainer.confusion.sum(dim=1).tolist() == [5] * 6
    right = trainer.confusion.diagonal().view(TASKS, 2).sum(dim=1) / 10 * 100
    assert trainer.accuracy[-1] == pytest.approx(right.tolist())


def test_a_task_ends_once_and_before_its_evaluation(told: tuple[Trainer, Notes]) -> None:
    trainer, _ = told
    assert isinstance(trainer.method, Counting)
    assert trainer.method.closed.tolist() == STEPS


def test_the_first_step_and_the_last_of_each_task_are_logged(told: tuple[Trainer, Notes]) -> None:
    _, notes = told
    assert [step.step for step in notes.steps] == [1, *STEPS]
    assert [step.task for step in notes.steps] == [0, 0, 1, 2]
    assert set(notes.steps[0].terms) == {"new"}
    assert set(notes.steps[-1].terms) == {"new", "replay"}


def test_steps_are_logged_at_an_interval() -> None:
    notes = Notes()
    trainer_of(build(), notes, log_every=3).run()
    assert [step.step for step in notes.steps] == [1, 2, 3, 4, 6]


def test_images_and_seconds_only_grow(told: tuple[Trainer, Notes]) -> None:
    trainer, notes = told
    images = [step.images_seen for step in notes.steps]
    seconds = [step.train_seconds for step in notes.steps]
    assert images == sorted(images)
    assert images[0] == 10
    assert images[-1] == trainer.method.progress.images
    assert seconds == sorted(seconds)
    assert trainer.train_seconds >= seconds[-1] > 0
    assert trainer.eval_seconds == notes.evaluations[-1].eval_seconds > 0


def test_the_evaluation_of_a_run_is_no_training_of_the_run_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0.0, 1e-3)
    late = [0]
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock) + late[0])
    slow, beside = (trainer_of(build(), Notes()) for _ in range(2))
    predict = slow.method.predict

    def delayed(images: Tensor) -> Tensor:
        late[0] += 100
        return predict(images)

    monkeypatch.setattr(slow.method, "predict", delayed)
    for _ in zip(slow.steps(), beside.steps(), strict=True):
        pass
    assert slow.eval_seconds > 100
    assert max(slow.elapsed_seconds, beside.elapsed_seconds) < 1


@pytest.mark.parametrize("name", ["er", "onpro"])
def test_a_run_resumed_anywhere_equals_one_without_interruption(name: str) -> None:
    notes = Notes()
    straight = trainer_of(build(method(name), name), notes, log_every=1)
    notes.trainer = straight
    straight.run()
    assert len(notes.states) == STEPS[-1] + TASKS, "after each step and after each evaluation"
    for state in notes.states:
        resumed = trainer_of(build(method(name), name), Notes(), log_every=1)
        resumed.load_state_dict(state)
        resumed.run()
        assert resumed.accuracy == straight.accuracy
        assert torch.equal(resumed.confusion, straight.confusion)
        assert equal(resumed.method.state_dict(), straight.method.state_dict())


def test_a_finished_run_has_nothing_left_to_do(told: tuple[Trainer, Notes]) -> None:
    trainer, _ = told
    notes = Notes()
    again = trainer_of(build(Counting), notes)
    again.load_state_dict(copy.deepcopy(trainer.state_dict()))
    again.run()
    assert not notes.steps
    assert not notes.evaluations
    assert again.accuracy == trainer.accuracy


def test_a_task_without_test_images_is_refused_before_any_training() -> None:
    first = DATA.test.labels < 4
    test = Split(DATA.test.images[first], DATA.test.labels[first])
    stream = ClassIncremental(replace(DATA, test=test), TASKS)
    with pytest.raises(UserError, match=r"task 3 of 3 \(stripes 4, stripes 5\) has no test image"):
        Trainer(build(), stream)
    Trainer(build(), ClassIncremental(replace(DATA, test=test), 2))
