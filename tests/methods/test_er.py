"""ER: two forwards, two means, one step of SGD, then the memory."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context
from onpro.methods.er import ER, ERSettings
from onpro.streams import Batch, ClassIncremental
from tests.methods.learners import in_float64, stepper

DATA = tiny(classes=4, train_per_class=50, test_per_class=1, image_size=8)


class Watched(ER):
    """ER that notes what goes through its encoder in training, and the fill of its memory then."""

    def __init__(self, settings: ERSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.forwards: list[Tensor] = []
        self.fills: list[int] = []
        self.network.encoder.register_forward_pre_hook(self._note)

    def _note(self, _: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        if not self.network.training:
            return
        self.forwards.append(inputs[0].detach())
        self.fills.append(len(self.memory))


def learner(num_classes: int | None = 4, memory: int = 200, **changes: Any) -> Watched:
    context = Context(
        DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=num_classes, memory=memory
    )
    return Watched(ERSettings(**{"encoder": "slim"} | changes), context)


def batches(count: int) -> list[Batch]:
    stream = iter(ClassIncremental(DATA, 2))
    return [next(stream) for _ in range(count)]


def test_two_forwards_new_then_replay() -> None:
    method = learner()
    for batch in batches(9):
        stepper(method).step(batch)
    sizes = [len(images) for images in method.forwards]
    assert sizes == [10, 10, 10, 10, 20, 10, 30, 10, 40, 10, 50, 10, 60, 10, 64, 10, 64]
    assert method.progress.images == sum(sizes)


def test_the_first_batch_has_no_replay() -> None:
    method = learner()
    first, second = batches(2)
    assert set(stepper(method).step(first)) == {"new"}
    assert set(stepper(method).step(second)) == {"new", "replay"}


def test_images_are_replayed_raw_where_nothing_varies_them() -> None:
    method = learner(augmentation="none")
    first, second = batches(2)
    stepper(method).step(first)
    stepper(method).step(second)
    _, new, replay = method.forwards
    assert torch.equal(new, method.normalise(second.images))
    stored = method.normalise(first.images)
    equal = (replay[:, None] == stored[None]).flatten(2).all(dim=2)
    assert equal.any(dim=1).all()  # replayed in random order, each once
    assert equal.any(dim=0).all()


def test_images_are_augmented_before_the_network() -> None:
    method = learner()
    first, second = batches(2)
    stepper(method).step(first)
    stepper(method).step(second)
    new, _, replay = method.forwards
    assert not torch.equal(new, method.normalise(first.images))
    assert not torch.equal(replay.sort(dim=0).values, new.sort(dim=0).values)


def test_one_sgd_step_on_the_sum_of_two_means() -> None:
    method = learner(augmentation="none", learning_rate=0.05)
    in_float64(method)
    first, second, third = batches(3)
    stepper(method).step(first)
    stepper(method).step(second)
    network = deepcopy(method.network)
    new, stored = method.normalise(third.images), method.normalise(method.memory.images)
    of_new = cross_entropy(network(new), third.labels)
    of_replay = cross_entropy(network(stored), method.memory.labels)
    gradients = torch.autograd.grad(of_new + of_replay, list(network.parameters()))

    terms = stepper(method).step(third)
    torch.testing.assert_close(terms["new"], of_new.detach())
    torch.testing.assert_close(terms["replay"], of_replay.detach())
    after = dict(method.network.named_parameters())
    for (name, before), gradient in zip(network.named_parameters(), gradients, strict=True):
        expected = before.detach() - 0.05 * gradient
        torch.testing.assert_close(after[name].detach(), expected)
    for name, running in network.named_buffers():  # new and old images in separate statistics
        torch.testing.assert_close(method.network.get_buffer(name), running)


def test_the_memory_gets_raw_images_after_the_step() -> None:
    method = learner()
    first, second = batches(2)
    stepper(method).step(first)
    stepper(method).step(second)
    assert method.fills == [0, 10, 10]
    assert torch.equal(method.memory.images, torch.cat([first.images, second.images]))
    assert torch.equal(method.memory.labels, torch.cat([first.labels, second.labels]))


def test_images_of_the_current_task_are_replayed_too() -> None:
    method = learner(augmentation="none", replay_batch=200)
    stream = batches(12)
    for batch in stream:
        stepper(method).step(batch)
    assert len(method.forwards[-1]) == 110
    newest = method.normalise(stream[10].images)
    equal = (newest[:, None] == method.forwards[-1][None]).flatten(2).all(dim=2)
    assert equal.any(dim=1).all()


def test_a_full_memory_stays_full() -> None:
    method = learner(memory=15)
    for batch in batches(4):
        stepper(method).step(batch)
    assert len(method.memory) == 15
    assert [len(images) for images in method.forwards] == [10, 10, 10, 10, 15, 10, 15]


def test_settings_reach_the_optimizer() -> None:
    optimizer = learner(momentum=0.5, weight_decay=0.01).optimizer
    assert isinstance(optimizer, torch.optim.SGD)
    assert optimizer.defaults["lr"] == 0.1
    assert optimizer.defaults["momentum"] == 0.5
    assert optimizer.defaults["weight_decay"] == 0.01
    adam = learner(optimizer="adam", learning_rate=0.002, weight_decay=0.03).optimizer
    assert isinstance(adam, torch.optim.Adam)
    assert adam.defaults["lr"] == 0.002
    assert adam.defaults["weight_decay"] == 0.03


def test_the_head_grows_where_nobody_announces_the_classes() -> None:
    method = learner(num_classes=None)
    widths = []
    for batch in batches(12):
        stepper(method).step(replace(batch, task=None))
        widths.append(method.network.classes)
    assert widths == [2] * 10 + [4] * 2
    assert method.progress.task == 1
    assert method.predict(DATA.test.images).shape == (4,)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"learning_rate": 0.0}, "learning rate"),
        ({"learning_rate": float("nan")}, "learning rate"),
        ({"momentum": -0.1}, "momentum"),
        ({"momentum": 1.0}, "momentum"),
        ({"weight_decay": -1e-4}, "weight decay"),
        ({"replay_batch": 0}, "replay batch"),
        ({"memory": 0}, "memory"),
        ({"encoder": "slimm"}, "slim"),
        ({"augmentation": "croop"}, "crop"),
    ],
)
def test_a_bad_value_is_refused_with_one_sentence(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError) as refused:
        learner(**changes)
    sentence = str(refused.value)
    assert word in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
