"""What all methods share: boundaries, growing heads, prediction, state."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.memory.memory import room_for
from onpro.methods import Context, Settings
from onpro.methods.base import About, Method, total
from onpro.streams import Batch, ClassIncremental, Progress
from tests.methods.learners import in_float64, stepper

DATA = tiny(classes=6, train_per_class=10, test_per_class=2, image_size=8)
SETTINGS = Settings(encoder="slim", augmentation="none")


class Recorder(Method[Settings]):
    """Classifies new images, and notes when its hooks are called."""

    about = About("recorder", "Recorder", "None", 2024, "images", "linear head", "10")

    def __init__(self, settings: Settings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.1, 0.9)
        self.memory = self.make_memory()
        self.counts = torch.zeros(3)
        self.notes: list[str] = []

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        self.notes.append(f"learn {self.progress.task}.{self.progress.steps_in_task}")
        self.counts = self.counts + 1
        loss = torch.nn.functional.cross_entropy(
            self.network.logits(self.normalise(batch.images)), batch.labels
        )
        self.minimise({"ce": loss})
        return {"ce": loss, "twice": 2 * loss}

    def start_task(self) -> None:
        self.notes.append("start")

    def end_task(self) -> None:
        self.notes.append("end")


def recorder(**changes: Any) -> Recorder:
    context = Context(DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=6)
    return Recorder(SETTINGS, replace(context, **changes))


def batches(*, announced: bool = True) -> list[Batch]:
    """Two batches of each of three tasks."""
    stream = ClassIncremental(DATA, 3)
    return [batch if announced else replace(batch, task=None) for batch in stream]


def test_announced_tasks_start_and_end_once() -> None:
    method = recorder()
    for batch in batches():
        stepper(method).step(batch)
    stepper(method).finish_task()
    stepper(method).finish_task()
    hooks = ("start", "learn {0}.0", "learn {0}.1", "end")
    assert method.notes == [hook.format(task) for task in range(3) for hook in hooks]


def test_a_loop_that_closes_tasks_itself_sees_the_same() -> None:
    method, by_itself = recorder(), recorder()
    for step, batch in enumerate(batches()):
        stepper(method).step(batch)
        stepper(by_itself).step(batch)
        if step % 2:
            stepper(method).finish_task()
    stepper(by_itself).finish_task()
    assert method.notes == by_itself.notes


def test_without_announcements_a_new_class_begins_a_task() -> None:
    method = recorder(num_classes=None)
    for batch in batches(announced=False):
        stepper(method).step(batch)
    assert method.notes.count("start") == 3
    assert method.progress.task == 2
    assert method.progress.seen_before_task == {0, 1, 2, 3}
    assert method.progress.seen == set(range(6))


def test_a_task_opened_after_a_close_starts_like_any_other() -> None:
    method = recorder()
    first = batches(announced=False)[0]
    stepper(method).step(first)
    stepper(method).finish_task()
    stepper(method).step(first)
    assert method.notes == ["start", "learn 0.0", "end", "start", "learn 1.0"]


def test_an_empty_batch_is_nothing() -> None:
    method, batch = recorder(), batches()[0]
    nothing = replace(batch, images=batch.images[:0], labels=batch.labels[:0], classes=())
    assert stepper(method).step(nothing) == {}
    assert method.notes == []
    assert method.progress == Progress()


def test_terms_come_back_detached() -> None:
    terms = stepper(recorder()).step(batches()[0])
    assert set(terms) == {"ce", "twice"}
    assert not any(term.requires_grad for term in terms.values())
    assert torch.equal(total(terms), 3 * terms["ce"])


def test_progress_counts_steps_images_and_classes() -> None:
    method = recorder()
    for batch in batches()[:3]:
        stepper(method).step(batch)
    progress = method.progress
    assert (progress.steps, progress.steps_in_task, progress.images) == (3, 1, 30)
    assert (progress.task, progress.announced, progress.seen_before_task) == (1, 1, {0, 1})
    resumed = Progress()
    resumed.load_state_dict(progress.state_dict())
    assert resumed == progress


def test_heads_grow_with_unannounced_classes_and_only_then() -> None:
    method = recorder(num_classes=None)
    widths = []
    for batch in batches(announced=False):
        stepper(method).step(batch)
        widths.append(method.network.classes)
    assert widths == [2, 2, 4, 4, 6, 6]
    announced = recorder()
    stepper(announced).step(batches()[0])
    assert announced.network.classes == 6


def test_prediction_is_the_highest_score_in_eval_mode_and_leaves_train_mode() -> None:
    method = in_float64(recorder())
    for batch in batches():
        stepper(method).step(batch)
    images = DATA.test.images
    scores = method.scores(images)
    assert scores.shape == (12, 6)
    assert not scores.requires_grad
    assert torch.equal(method.predict(images), scores.argmax(dim=1))
    torch.testing.assert_close(method.scores(images[:1]), scores[:1])
    assert method.network.training


def test_a_prediction_that_fails_leaves_train_mode_too() -> None:
    method = recorder()
    with pytest.raises(RuntimeError):
        method.predict(torch.zeros(1, 5, 8, 8, dtype=torch.uint8))
    assert method.network.training


def test_tensors_and_parts_are_state_and_go_on_elsewhere() -> None:
    source = recorder(num_classes=None)
    for batch in batches(announced=False)[:4]:
        stepper(source).step(batch)
    state = source.state_dict()
    assert {"network", "optimizer", "memory", "progress", "random", "counts"} <= set(state)
    resumed = recorder(num_classes=None)
    resumed.load_state_dict(state)
    assert resumed.network.classes == 4
    assert torch.equal(resumed.counts, torch.full((3,), 4.0))
    assert resumed.progress == source.progress
    assert torch.equal(resumed.scores(DATA.test.images), source.scores(DATA.test.images))


def test_a_saved_tensor_does_not_follow_the_method() -> None:
    method = recorder()
    state = method.state_dict()
    stepper(method).step(batches()[0])
    assert torch.equal(state["counts"], torch.zeros(3))


def test_a_memory_too_small_or_too_large_is_refused() -> None:
    with pytest.raises(UserError, match="must hold at least 1 image"):
        recorder(memory=0)
    with pytest.raises(UserError, match="does not fit on cpu"):
        recorder(memory=10**14)
    with pytest.raises(UserError, match="does not fit on cpu"):
        recorder(memory=10**30)


@pytest.mark.parametrize("error", [TypeError("a slip"), RuntimeError("shapes do not match")])
def test_a_mistake_in_a_memory_is_not_taken_for_a_lack_of_room(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)), room_for(10, torch.device("cpu")):
        raise error


@pytest.mark.parametrize("error", [RuntimeError("CUDA error: unspecified"), TypeError("no")])
def test_only_memory_that_runs_out_is_called_so(error: Exception) -> None:
    with pytest.raises(type(error)), room_for(10, torch.device("cpu")):
        raise error
    with pytest.raises(UserError, match="does not fit"), room_for(10, torch.device("cpu")):
        raise torch.OutOfMemoryError


def test_settings_are_checked_before_anything_is_built() -> None:
    with pytest.raises(UserError, match="did you mean 'slim'"):
        Recorder(Settings(encoder="slin"), recorder().context)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_is_the_networks_alone(precision: str) -> None:
    method = recorder(precision=precision)
    assert method.network.features(method.normalise(DATA.test.images)).dtype == torch.float32
    assert bool(stepper(method).step(batches()[0])["ce"].isfinite())


@pytest.mark.parametrize("classes", [(), (-1, 0)])
def test_a_batch_that_does_not_name_its_classes_is_refused(classes: tuple[int, ...]) -> None:
    learner = recorder()
    with pytest.raises(ValueError, match="must name the classes of its labels"):
        stepper(learner).step(Batch(DATA.train.images[:1], DATA.train.labels[:1], None, classes))
    assert learner.progress == Progress()
