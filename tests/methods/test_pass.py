"""PASS: four rotations, prototypes with noise, and a second look when a task ends."""

import logging
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from onpro.memory.task_images import TaskImages
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


def after_first_task(**changes: Any) -> Any:
    """A learner whose first task, of classes 0 and 1, is over."""
    method = learner("pass", **changes)
    for batch in batches(10):
        stepper(method).step(batch)
    stepper(method).finish_task()
    return method


def test_four_rotations_interleaved() -> None:
    method = learner("pass", augmentation="none")
    forwards = watch(method)
    batch = batches(1)[0]
    network = deepcopy(method.network)
    assert set(stepper(method).step(batch)) == {"ce"}
    images = method.normalise(batch.images)
    (seen,) = (f.images for f in forwards)
    assert len(seen) == 40
    for turns in range(4):
        assert torch.equal(seen[turns::4], images.rot90(turns, (-2, -1)))
    assert network.classes == 0


def test_the_head_has_four_outputs_for_each_class_that_has_appeared() -> None:
    method = learner("pass")
    assert method.network.classifier.out_features == 0  # although four classes are announced
    batch = batches(1)[0]
    stepper(method).step(batch)
    assert method.network.classifier.out_features == 4 * 2
    old = method.network.classifier.weight.detach().clone()
    stepper(method).finish_task()
    method.grow(4)
    assert method.network.classifier.out_features == 4 * 4
    assert torch.equal(method.network.classifier.weight[:8], old)
    scores = method.scores(batch.images)
    network = deepcopy(method.network).eval()
    with torch.no_grad():
        outputs = network.classifier(network.features(method.normalise(batch.images)))
    torch.testing.assert_close(scores, outputs[:, [0, 4, 8, 12]])


def test_every_task_begins_with_a_new_adam() -> None:
    method = after_first_task()
    before = method.optimizer
    assert before.state
    stepper(method).step(batches(1, start=10)[0])
    assert method.optimizer is not before
    steps = {float(state["step"]) for state in method.optimizer.state.values()}
    assert steps == {1.0}
    now = method.optimizer
    stepper(method).step(batches(1, start=11)[0])
    assert method.optimizer is now


def test_weights_decay_in_every_task() -> None:
    """A decay that outweighs every gradient: the first step of an Adam goes towards 0."""
    method = learner("pass", weight_decay=1e6, learning_rate=1e-7)
    for batch in (batches(1)[0], batches(1, start=10)[0]):
        before = method.network.encoder.conv1.weight.detach().clone()
        stepper(method).step(batch)
        moved = method.network.encoder.conv1.weight.detach() - before
        assert torch.equal(moved.sign(), -before.sign())


def test_a_later_step_has_three_terms() -> None:
    method = after_first_task(
        float64=True, augmentation="none", distillation_weight=2.0, prototype_weight=3.0
    )
    batch = batches(1, start=10)[0]
    method.grow(4)
    network, previous = deepcopy(method.network), deepcopy(method.previous.network)
    forwards, of_previous = watch(method), watch(method.previous)
    drawn: list[Any] = []
    draw = method.augmented_prototypes

    def note(count: int) -> Any:
        drawn.append(draw(count))
        return drawn[0]

    method.augmented_prototypes = note
    before = method.progress.images
    terms = stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [40, 40]  # features take a forward of their own
    assert [(len(f.images), f.training) for f in of_previous] == [(40, False)]
    assert method.progress.images - before == 120

    images = forwards[0].images
    labels = torch.tensor([4 * y + k for y in batch.labels.tolist() for k in range(4)])
    features = network.features(images)
    ((prototypes, outputs),) = drawn
    with torch.no_grad():
        distance = (features - previous.features(images)).square().sum().sqrt()
    expected = {
        "ce": cross_entropy(network.classifier(features) / 0.1, labels),
        "distillation": 2 * distance,
        "prototypes": 3 * cross_entropy(network.classifier(prototypes) / 0.1, outputs),
    }
    assert set(terms) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value.detach())
    network.features(images)
    running = method.network.encoder.bn1.running_mean
    torch.testing.assert_close(running, network.encoder.bn1.running_mean)


def test_prototypes_are_mean_features_of_the_tasks_images() -> None:
    method = learner("pass", float64=True, augmentation="none")
    stream = batches(10)
    for batch in stream:
        stepper(method).step(batch)
    network = deepcopy(method.network).eval()
    statistics = method.network.encoder.bn1.running_mean.clone()
    stepper(method).finish_task()
    images, labels = (torch.cat([getattr(b, f) for b in stream]) for f in ("images", "labels"))
    with torch.no_grad():
        features = network.features(method.normalise(images))
    variances = []
    for k in (0, 1):
        mine = features[labels == k]
        torch.testing.assert_close(method.prototypes[k], mine.mean(dim=0))
        variances.append(torch.cov(mine.T).trace() / features.shape[1])
    expected = torch.stack(variances).mean().sqrt()
    torch.testing.assert_close(method.radius, expected)
    assert method.has_prototype.tolist() == [True, True]
    assert torch.equal(method.network.encoder.bn1.running_mean, statistics)
    assert method.network.training


def test_the_second_look_is_augmented_and_not_rotated() -> None:
    method = learner("pass")
    stream = batches(3)
    for batch in stream:
        stepper(method).step(batch)
    forwards = watch(method)
    stepper(method).finish_task()
    (second,) = forwards
    assert not second.training
    assert len(second.images) == 30
    stored = method.normalise(torch.cat([batch.images for batch in stream]))
    assert not found_in(second.images, stored).all()


def test_the_radius_is_that_of_the_first_task() -> None:
    method = after_first_task()
    radius, old = method.radius.clone(), method.prototypes.clone()
    assert radius > 0
    for batch in batches(10, start=10):
        stepper(method).step(batch)
    stepper(method).finish_task()
    assert torch.equal(method.radius, radius)
    assert torch.equal(method.prototypes[:2], old)
    assert method.has_prototype.tolist() == [True] * 4


def test_augmented_prototypes_lie_around_those_of_old_classes() -> None:
    method = after_first_task()
    method.grow(4)
    method.radius = torch.tensor(0.5)
    prototypes, outputs = method.augmented_prototypes(2000)
    assert set(outputs.tolist()) == {0, 4}
    share = (outputs == 0).float().mean().item()
    assert share == pytest.approx(0.5, abs=0.06)
    noise = prototypes - method.prototypes[outputs // 4]
    assert noise.std().item() == pytest.approx(0.5, rel=0.02)
    assert noise.mean().item() == pytest.approx(0.0, abs=0.01)


def test_the_previous_network_is_a_frozen_copy() -> None:
    method = after_first_task()
    state = method.previous.network.state_dict()
    assert all(torch.equal(v, state[n]) for n, v in method.network.state_dict().items())
    before = deepcopy(state)
    stepper(method).step(batches(1, start=10)[0])
    after = method.previous.network.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_the_tasks_images_stay_until_it_is_over() -> None:
    method = learner("pass")
    stream = batches(3)
    for batch in stream:
        stepper(method).step(batch)
    images, _ = method.task_images.whole_batches()
    assert torch.equal(images, torch.cat([batch.images for batch in stream]))
    stepper(method).finish_task()
    assert not method.task_images.state_dict()["images"]


def test_a_last_batch_that_is_not_full_is_left_out() -> None:
    kept = TaskImages((3, 8, 8), torch.device("cpu"))
    for size in (3, 3, 2):
        kept.add(torch.zeros(size, 3, 8, 8, dtype=torch.uint8), torch.arange(size))
    _, labels = kept.whole_batches()
    assert labels.tolist() == [0, 1, 2, 0, 1, 2]
    alone = TaskImages((3, 8, 8), torch.device("cpu"))
    alone.add(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.tensor([7]))
    assert alone.whole_batches()[1].tolist() == [7]


def test_there_is_no_memory_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        method = learner("pass", memory=123)
        assert not caplog.text  # a learner that is only tried out says nothing
        for batch in batches(12):
            stepper(method).step(batch)
        for label in range(4):
            stepper(method).forget(label)
        stepper(method).step(batches(1)[0])
    assert method.progress.task == 0  # nothing was left: tasks are counted from the first again
    assert method.memory.capacity == 0
    assert caplog.text.count("the memory of 123 is not used.") == 1


def test_it_learns_the_same_whatever_the_memory() -> None:
    weights = []
    for memory in (1, 40):
        method = learner("pass", memory=memory)
        for batch in batches(14):
            stepper(method).step(batch)
        weights.append(method.network.classifier.weight)
    assert not method.keeps_images
    assert torch.equal(*weights)


def test_classes_and_boundaries_that_nobody_announced() -> None:
    method = learner("pass", num_classes=None)
    for batch in batches(14):
        terms = stepper(method).step(replace(batch, task=None))
    assert method.network.classes == 4
    assert method.progress.task >= 1
    assert method.has_prototype[:2].all()
    assert all(term.isfinite() for term in terms.values())


def test_a_class_given_up_is_drawn_no_more() -> None:
    method = after_first_task()
    stepper(method).step(batches(1, start=10)[0])
    weight = method.network.classifier.weight.detach().clone()
    method.forget(0)
    changed = (method.network.classifier.weight != weight).any(dim=1)
    assert changed.tolist() == [True] * 4 + [False] * 12
    _, outputs = method.augmented_prototypes(50)
    assert set(outputs.tolist()) == {4}
    stepper(method).forget(1)
    assert set(stepper(method).step(batches(1, start=11)[0])) == {"ce"}  # nothing left to keep


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"weight_decay": -1.0}, "weight decay"),
        ({"prototype_weight": -1.0}, "prototype weight"),
        ({"distillation_weight": -1.0}, "distillation weight"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("pass", word, **changes)
