"""GDumb: a balanced memory, and a fresh network trained on it after each task."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

from onpro.memory.greedy_balanced import GreedyBalancedMemory
from onpro.methods.gdumb import GDumbSettings
from tests.methods.learners import DATA, batches, learner, refused, stepper, watch


class Obvious:
    """GDumb's memory as lists of item numbers, one for each class in the order of storage."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.items: dict[int, list[int]] = {}

    def offer(self, item: int, label: int, draw: float) -> None:
        quota = self.size // max(1, len(self.items))
        if label in self.items and len(self.items[label]) >= quota:
            return
        if sum(map(len, self.items.values())) == self.size:
            largest = max(self.items.values(), key=len)  # the first of several
            del largest[int(draw * len(largest))]
        self.items.setdefault(label, []).append(item)


def offered(
    memory: GreedyBalancedMemory, labels: Tensor, draws: Tensor, together: int
) -> GreedyBalancedMemory:
    images = torch.arange(len(labels)).to(torch.uint8).view(-1, 1, 1, 1)
    for batch in torch.arange(len(labels)).split(together):
        memory.update(images[batch], labels[batch], draws[batch])
    return memory


def empty(size: int, classes: int = 8) -> GreedyBalancedMemory:
    return GreedyBalancedMemory(size, (1, 1, 1), classes, device="cpu")


@pytest.mark.parametrize("size", [1, 3, 7, 24])
@pytest.mark.parametrize("together", [1, 9, 200])
def test_the_memory_is_that_of_the_obvious_algorithm(size: int, together: int) -> None:
    generator = torch.Generator().manual_seed(size)
    newest = torch.arange(200) // 25  # classes keep arriving, old ones come again
    labels = (torch.rand(200, generator=generator) * (newest + 1)).long()
    draws = torch.rand(200, dtype=torch.float64, generator=generator)
    memory = offered(empty(size), labels, draws, together)
    obvious = Obvious(size)
    for item, (label, draw) in enumerate(zip(labels.tolist(), draws.tolist(), strict=True)):
        obvious.offer(item, label, draw)
    kept = sorted(item for items in obvious.items.values() for item in items)
    assert memory.images.flatten().sort().values.tolist() == kept
    assert torch.equal(memory.labels, labels[memory.images.flatten().long()])
    assert len(memory) == len(kept)


def test_classes_end_up_balanced() -> None:
    labels = torch.arange(240) // 60  # one class after the other
    draws = torch.rand(240, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    memory = offered(empty(20), labels, draws, 10)
    assert torch.bincount(memory.labels).tolist() == [5, 5, 5, 5]


def test_a_saved_memory_goes_on_as_before() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(8, (100,), generator=generator)
    draws = torch.rand(100, dtype=torch.float64, generator=generator)
    straight = offered(empty(10), labels, draws, 10)
    resumed = empty(10)
    resumed.load_state_dict(deepcopy(straight.state_dict()))
    images = torch.arange(200, 220).to(torch.uint8).view(-1, 1, 1, 1)
    for memory in (straight, resumed):
        memory.update(images, labels[:20], draws[:20])
    torch.testing.assert_close(straight.state_dict(), resumed.state_dict())


def test_a_removed_class_counts_as_never_stored() -> None:
    memory = offered(empty(6), torch.tensor([0, 0, 0, 1, 1, 1]), torch.zeros(6).double(), 6)
    memory.remove(0)
    assert memory.labels.tolist() == [1, 1, 1]
    offered(memory, torch.tensor([2, 2, 2, 2]), torch.zeros(4).double(), 4)
    assert memory.labels.tolist() == [1, 1, 1, 2, 2, 2]  # room for 3 of each, as of two classes


def test_the_memory_grows_with_the_classes() -> None:
    memory = empty(4, classes=1)
    memory.grow(3)
    offered(memory, torch.tensor([0, 2]), torch.zeros(2).double(), 2)
    assert memory.labels.tolist() == [0, 2]


def test_a_step_trains_nothing() -> None:
    method = learner("gdumb", memory=20)
    forwards = watch(method)
    before = deepcopy(method.network.state_dict())
    for batch in batches(5):
        assert stepper(method).step(batch) == {}
    assert not forwards
    assert method.progress.images == 0
    torch.testing.assert_close(method.network.state_dict(), before, rtol=0, atol=0)
    assert method.predict(DATA.test.images).shape == (20,)  # by the untrained network


def test_a_fresh_network_is_trained_when_a_task_ends() -> None:
    method = learner("gdumb", memory=25, epochs=3)
    untrained = method.network
    for batch in batches(10):
        stepper(method).step(batch)
    stepper(method).finish_task()
    first = method.network
    assert first is not untrained
    assert method.progress.images == 3 * 20  # batches of 10, the rest of each epoch dropped
    stepper(method).step(batches(1, start=10)[0])
    assert method.network is first
    stepper(method).finish_task()
    assert method.network is not first
    assert method.network.training


def test_training_depends_on_the_memory_alone_not_on_the_network_before() -> None:
    one, other = learner("gdumb", memory=20, epochs=2), learner("gdumb", memory=20, epochs=2)
    for batch in batches(4):
        stepper(one).step(batch)
        stepper(other).step(batch)
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.fill_(7.0)
    stepper(one).finish_task()
    stepper(other).finish_task()
    torch.testing.assert_close(one.network.state_dict(), other.network.state_dict())


def test_fewer_stored_images_than_a_training_batch_are_trained_together() -> None:
    method = learner("gdumb", epochs=2)
    batch = batches(1, size=4)[0]
    stepper(method).step(batch)
    stepper(method).finish_task()
    assert method.progress.images == 8


def test_gradients_are_clipped() -> None:
    method = learner("gdumb", memory=20, epochs=1, clip=0.01, learning_rate=0.5)
    for batch in batches(3):
        stepper(method).step(batch)
    norms = []
    step = method.step

    def note() -> None:
        parts = [p.grad.norm() for p in method.network.parameters()]
        norms.append(float(torch.stack(parts).norm()))
        step()

    method.step = note
    stepper(method).finish_task()
    assert len(norms) == 2
    assert max(norms) <= 0.0101


def test_the_learning_rate_is_constant_or_falls_along_cosines() -> None:
    assert {GDumbSettings().rate(epoch) for epoch in range(70)} == {0.1}
    settings = GDumbSettings(schedule="cosine", learning_rate=0.05)
    assert settings.rate(0) == pytest.approx(0.005)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.05)
    scheduler = CosineAnnealingWarmRestarts(optimizer, T_0=1, T_mult=2, eta_min=5e-4)
    for epoch in range(1, 40):
        assert settings.rate(epoch) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epochs": 0}, "epoch"),
        ({"train_batch": 0}, "batch"),
        ({"learning_rate": -1.0}, "learning rate"),
        ({"schedule": "linear"}, "schedule"),
        ({"schedule": "cosine", "minimum_learning_rate": 1.0}, "minimum learning rate"),
        ({"clip": 0.0}, "clip"),
        ({"momentum": 1.0}, "momentum"),
        ({"weight_decay": -1.0}, "weight decay"),
        ({"memory": 0}, "memory"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("gdumb", word, **changes)
