"""MIR: replay of what a step on the new batch would spoil most."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from onpro.nn.gradients import virtual_step
from tests.methods.learners import UNSCALED, batches, found_in, learner, refused, stepper, watch


def test_four_forwards_of_new_candidates_twice_and_replay() -> None:
    method = learner("mir", replay_batch=8, candidates=12)
    forwards = watch(method)
    for batch in batches(4):
        stepper(method).step(batch)
    sizes = [len(f.images) for f in forwards]
    assert sizes == [10, 10, 10, 10, 8, 10, 12, 12, 8, 10, 12, 12, 8]
    assert all(f.training for f in forwards)
    assert method.progress.images == sum(sizes)


def test_candidates_are_scored_raw_and_replayed_augmented() -> None:
    method = learner("mir", replay_batch=8, candidates=12)
    first, second, third = batches(3)
    for batch in (first, second):
        stepper(method).step(batch)
    stored = method.normalise(method.memory.images)
    forwards = watch(method)
    stepper(method).step(third)
    new, now, then, replay = (f.images for f in forwards)
    assert torch.equal(now, then)
    assert found_in(now, stored).all()
    assert not found_in(new, method.normalise(third.images)).all()
    assert not found_in(replay, stored).all()


def test_the_most_interfered_candidates_are_replayed() -> None:
    method = learner(
        "mir", float64=True, augmentation="none", replay_batch=8, candidates=200, momentum=0.9
    )
    for batch in batches(12):
        stepper(method).step(batch)
    batch = batches(1, start=12)[0]
    stored, labels = method.normalise(method.memory.images), method.memory.labels.clone()
    network = deepcopy(method.network)
    loss = cross_entropy(network(method.normalise(batch.images)), batch.labels)
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    stepped = deepcopy(network)
    with torch.no_grad():
        now = cross_entropy(network(stored), labels, reduction="none")
        for parameter, gradient in zip(stepped.parameters(), gradients, strict=True):
            parameter -= 0.1 * gradient  # a plain step, though the optimizer has momentum
        then = cross_entropy(stepped(stored), labels, reduction="none")
    expected = stored[(then - now).topk(8).indices]

    forwards = watch(method)
    stepper(method).step(batch)
    replay = forwards[-1].images
    assert found_in(replay, expected).all()
    assert found_in(expected, replay).all()
    network(replay)  # the network's own statistics: new batch, candidates once, replay
    for name, running in network.named_buffers():
        torch.testing.assert_close(method.network.get_buffer(name), running)


def test_the_step_is_that_of_both_losses() -> None:
    method = learner(
        "mir", float64=True, augmentation="none", learning_rate=0.05, replay_batch=20, candidates=20
    )
    first, second, third = batches(3)
    stepper(method).step(first)
    stepper(method).step(second)
    network = deepcopy(method.network)
    stored, labels = method.normalise(method.memory.images), method.memory.labels.clone()
    loss = cross_entropy(network(method.normalise(third.images)), third.labels)
    loss = loss + cross_entropy(network(stored), labels)  # all candidates are replayed
    gradients = torch.autograd.grad(loss, list(network.parameters()))
    stepper(method).step(third)
    after = dict(method.network.named_parameters())
    for (name, before), gradient in zip(network.named_parameters(), gradients, strict=True):
        expected = before.detach() - 0.05 * gradient
        torch.testing.assert_close(after[name].detach(), expected)


def test_a_virtual_step_leaves_the_real_network_alone() -> None:
    method = learner("mir")
    first, second = batches(2)
    stepper(method).step(first)
    images = method.normalise(second.images)
    cross_entropy(method.network(images), second.labels).backward()
    before = deepcopy(method.network.state_dict())
    stepped = virtual_step(method.network, 0.3, UNSCALED)
    assert not stepped(images).requires_grad
    torch.testing.assert_close(method.network.state_dict(), before, rtol=0, atol=0)

    real = deepcopy(method.network)
    with torch.no_grad():
        for parameter, source in zip(real.parameters(), method.network.parameters(), strict=True):
            parameter -= 0.3 * source.grad
    torch.testing.assert_close(stepped(images), real(images).detach())


def test_a_virtual_step_undoes_the_loss_scale() -> None:
    method = learner("mir")
    batch = batches(1)[0]
    images = method.normalise(batch.images)
    outputs = []
    for scale in (1.0, 1024.0):
        method.optimizer.zero_grad()
        (scale * cross_entropy(method.network(images), batch.labels)).backward()
        outputs.append(virtual_step(method.network, 0.1, torch.tensor(scale))(images))
    torch.testing.assert_close(outputs[0], outputs[1])


def test_a_part_can_be_stepped_and_what_has_no_gradient_stays() -> None:
    method = learner("mir")
    images = method.normalise(batches(1)[0].images)
    features = method.network.encoder(images)
    stepped = virtual_step(method.network.encoder, 0.1, UNSCALED)
    torch.testing.assert_close(stepped(images), features.detach())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"candidates": 50, "replay_batch": 64}, "candidates"),
        ({"candidates": 0, "replay_batch": 1}, "candidates"),
        ({"replay_batch": 0}, "replay batch"),
        ({"learning_rate": 0.0}, "learning rate"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("mir", word, **changes)
