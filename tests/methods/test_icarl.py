"""iCaRL: binary cross-entropy, old classes as the previous network saw them, nearest mean."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, normalize, one_hot

from onpro.losses import binary_targets
from onpro.methods.icarl import ICaRL
from onpro.methods.parts.ncm import class_mean_directions, nearest_mean_scores
from tests.methods.learners import DATA, batches, found_in, learner, refused, stepper, watch


def obvious_loss(logits: Tensor, targets: list[list[float | None]]) -> float:
    """Mean over rows of the sum over units that have a target."""
    rows = []
    for row, wanted in zip(logits.tolist(), targets, strict=True):
        terms = [
            -(t * math.log(1 / (1 + math.exp(-o))) + (1 - t) * math.log(1 / (1 + math.exp(o))))
            for o, t in zip(row, wanted, strict=True)
            if t is not None
        ]
        rows.append(sum(terms))
    return sum(rows) / len(rows)


def after_first_task(**changes: Any) -> ICaRL:
    method: ICaRL = learner("icarl", augmentation="none", **changes)
    for batch in batches(10):
        stepper(method).step(batch)
    stepper(method).finish_task()
    return method


def test_the_first_task_has_only_new_images_and_units_met_so_far() -> None:
    method = learner("icarl", float64=True, augmentation="none")
    batch = batches(1)[0]
    logits = deepcopy(method.network)(method.normalise(batch.images)).detach()
    targets: list[list[float | None]] = [
        [float(label == 0), float(label == 1), None, None] for label in batch.labels.tolist()
    ]
    forwards = watch(method)
    terms = stepper(method).step(batch)
    assert float(terms["binary"]) == pytest.approx(obvious_loss(logits, targets))
    assert [len(f.images) for f in forwards] == [10]


def test_a_later_step_distils_old_classes_on_every_row() -> None:
    method = after_first_task(float64=True, replay_batch=100)
    student, previous = deepcopy(method.network), deepcopy(method.teacher.network)
    assert previous.training
    batch = batches(1, start=10)[0]
    images = method.normalise(torch.cat([batch.images, method.memory.images]))
    logits, old = student(images).detach(), previous(images).sigmoid().detach().tolist()
    targets: list[list[float | None]] = [
        [row[0], row[1], float(label == 2), float(label == 3)]
        for row, label in zip(old, batch.labels.tolist() + [-1] * 100, strict=True)
    ]
    forwards = watch(method)
    terms = stepper(method).step(batch)
    assert float(terms["binary"]) == pytest.approx(obvious_loss(logits, targets))
    assert [len(f.images) for f in forwards] == [110]  # one forward of both
    for name, running in previous.named_buffers():  # the previous network's statistics move
        torch.testing.assert_close(method.teacher.network.get_buffer(name), running)
    for name, weight in previous.named_parameters():
        torch.testing.assert_close(method.teacher.network.get_parameter(name), weight)
    assert all(p.grad is None for p in method.teacher.network.parameters())
    assert method.progress.images == 100 + 2 * 110


def test_only_images_of_earlier_tasks_are_replayed() -> None:
    method = after_first_task(replay_batch=64)
    old = method.normalise(method.memory.images)
    forwards = watch(method)
    for batch in batches(6, start=10):
        stepper(method).step(batch)
    assert all(len(f.images) == 74 for f in forwards)
    assert all(found_in(f.images[10:], old).all() for f in forwards)


def test_fewer_old_images_than_asked_for_count_each_once() -> None:
    # 5 new and 5 old images make 20 rows: each of them twice, so that batch norm sees the same.
    method = after_first_task(float64=True, replay_batch=15, memory=20, learning_rate=0.05)
    method.memory.fields["task"][5:] = 1  # as if 15 had been replaced in this task
    batch = batches(1, start=20, size=5)[0]
    student, previous = deepcopy(method.network), deepcopy(method.teacher.network)
    images = method.normalise(torch.cat([batch.images, method.memory.images[:5]]))
    targets = torch.zeros(10, 4, dtype=torch.float64)
    targets[:5] = one_hot(batch.labels, 4)
    targets[:, :2] = previous(images).sigmoid().detach()[:, :2]
    each = binary_cross_entropy_with_logits(student(images), targets, reduction="none")
    loss = each[:, [0, 1, *batch.classes]].sum(dim=1).mean()
    gradients = torch.autograd.grad(loss, list(student.parameters()))

    forwards = watch(method)
    terms = stepper(method).step(batch)
    (shown,) = (f.images for f in forwards)
    assert torch.equal(shown[:10], shown[10:])
    assert found_in(images, shown).all()
    torch.testing.assert_close(terms["binary"], loss.detach())
    after = dict(method.network.named_parameters())
    for (name, before), gradient in zip(student.named_parameters(), gradients, strict=True):
        expected = before.detach() - 0.05 * gradient
        torch.testing.assert_close(after[name].detach(), expected)


def test_no_old_image_left() -> None:
    method = after_first_task(replay_batch=20, memory=20)
    method.memory.fields["task"][:] = 1
    batch = batches(1, start=10)[0]
    forwards = watch(method)
    assert bool(stepper(method).step(batch)["binary"].isfinite())
    assert found_in(forwards[-1].images, method.normalise(batch.images)).all()


def test_the_memory_remembers_in_which_task_an_image_came() -> None:
    method = after_first_task(memory=200)
    stepper(method).step(batches(1, start=10)[0])
    assert method.memory.fields["task"].tolist() == [0] * 100 + [1] * 10


def test_a_new_image_of_an_old_class_keeps_its_label() -> None:
    previous = torch.zeros(2, 2)
    known = torch.tensor([True, False])
    targets = binary_targets(torch.tensor([0]), 2, 3, previous, known)
    assert targets.tolist() == [[1.0, 0.0, 0.0], [0.5, 0.0, 0.0]]


def test_the_head_grows_and_the_previous_network_knows_fewer_classes() -> None:
    method = learner("icarl", num_classes=None)
    for batch in batches(13):
        stepper(method).step(replace(batch, task=None))
    assert method.network.classes == 4
    assert method.teacher.classes == 2
    assert method.in_use.tolist() == [True] * 4


def test_the_nearest_class_mean_of_the_memory_is_predicted() -> None:
    method = after_first_task(float64=True)
    network = deepcopy(method.network).eval()

    def directions(images: Tensor) -> Tensor:
        features: Tensor = network.features(method.normalise(images)).detach()
        return normalize(features)

    stored, queries = directions(method.memory.images), directions(DATA.test.images)
    means = [stored[method.memory.labels == k].mean(dim=0) for k in (0, 1)]
    means = [mean / mean.norm() for mean in means]
    distances = torch.stack([(queries - mean).square().sum(dim=1) for mean in means], dim=1)
    assert torch.equal(method.predict(DATA.test.images), distances.argmin(dim=1))
    scores = method.scores(DATA.test.images)
    torch.testing.assert_close(scores[:, :2], -distances)
    assert (scores[:, 2:] == -torch.inf).all()  # classes not seen do not compete


def test_means_are_those_of_the_present_network_and_memory() -> None:
    method = after_first_task()
    before = method.scores(DATA.test.images)
    assert torch.equal(method.scores(DATA.test.images), before)
    state = deepcopy(method.state_dict())
    stepper(method).step(batches(1, start=10)[0])
    assert not torch.equal(method.scores(DATA.test.images), before)
    method.load_state_dict(state)
    torch.testing.assert_close(method.scores(DATA.test.images), before)


def test_a_class_without_stored_image_competes_with_a_random_direction() -> None:
    method = after_first_task()
    method.memory.labels.fill_(0)
    first, second = method.scores(DATA.test.images), method.scores(DATA.test.images)
    assert first[:, :2].isfinite().all()
    assert torch.equal(first, second)
    features = torch.eye(3)
    means = class_mean_directions(
        features, torch.tensor([4, 4, 9]), torch.tensor([2, 4]), torch.Generator()
    )
    torch.testing.assert_close(means.norm(dim=1), torch.ones(2))
    torch.testing.assert_close(means[1], torch.tensor([0.5, 0.5, 0.0]) * 2**0.5)


def test_an_empty_memory_crashes_no_nearest_mean() -> None:
    means = class_mean_directions(
        torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64), torch.arange(2), torch.Generator()
    )
    scores = nearest_mean_scores(torch.zeros(1, 3), means)
    assert scores.isfinite().all()


def test_a_class_given_up_is_in_no_loss_and_no_prediction_is_stale() -> None:
    method = after_first_task()
    before = method.scores(DATA.test.images)
    method.forget(1)
    assert method.in_use.tolist() == [True, False, False, False]
    assert method.teacher.known.tolist() == [True, False, False, False]
    assert not torch.equal(method.scores(DATA.test.images)[:, 1], before[:, 1])


def test_a_bad_value_is_refused() -> None:
    refused("icarl", "replay batch", replay_batch=0)
