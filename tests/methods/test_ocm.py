"""OCM: contrast with the previous network, which normalises by the batch it is shown."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from onpro import losses
from onpro.augment import rotations
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch

SMALL: dict[str, Any] = {"projection": 32, "rotations": 4}


def after_first_task(**changes: Any) -> Any:
    """A learner whose first task, of classes 0 and 1, is over."""
    method = learner("ocm", **SMALL | changes)
    for batch in batches(10):
        stepper(method).step(batch)
    stepper(method).finish_task()
    return method


def test_the_first_task_has_no_replay() -> None:
    method = learner("ocm", **SMALL)
    forwards = watch(method)
    for batch in batches(2):
        assert set(stepper(method).step(batch)) == {"ins_new", "ce"}
    assert [len(f.images) for f in forwards] == [80, 10, 80, 10]
    assert not method.previous.in_use


def test_later_tasks_replay_up_to_seven_images_of_each_class() -> None:
    method = after_first_task()
    forwards, of_previous = watch(method), watch(method.previous)
    before = method.progress.images
    terms = stepper(method).step(batches(1, start=10)[0])
    assert set(terms) == {"ins_new", "ins_replay", "previous", "ce", "mse"}
    b = 7 * 4
    assert [len(f.images) for f in forwards] == [80 + 8 * b, b]
    assert [len(f.images) for f in of_previous] == [4 * b, b]
    assert method.progress.images - before == 80 + 9 * b + 5 * b


def test_sixteen_rotations_by_default() -> None:
    method = learner("ocm", projection=32)
    stepper(method).step(batches(1)[0])
    assert method.progress.images == 330


def test_the_previous_network_is_queried_in_train_mode() -> None:
    method = after_first_task()
    assert all(
        torch.equal(value, method.network.state_dict()[name])
        for name, value in method.previous.network.state_dict().items()
    )
    weights = {n: p.clone() for n, p in method.previous.network.named_parameters()}
    of_previous = watch(method.previous)
    statistics = method.previous.network.encoder.bn1.running_mean.clone()
    stepper(method).step(batches(1, start=10)[0])
    assert all(f.training for f in of_previous)
    assert not torch.equal(method.previous.network.encoder.bn1.running_mean, statistics)
    for name, parameter in method.previous.network.named_parameters():
        assert torch.equal(parameter, weights[name])
        assert parameter.grad is None


def test_logits_are_compared_on_two_augmentations() -> None:
    method = after_first_task()
    forwards, of_previous = watch(method), watch(method.previous)
    stepper(method).step(batches(1, start=10)[0])
    ours, theirs = forwards[1].images, of_previous[1].images
    assert not found_in(ours, theirs).any()
    raw = of_previous[0].images[: 7 * 4]
    assert found_in(raw, method.normalise(method.memory.images)).all()


def test_the_terms_of_a_later_step() -> None:
    method = after_first_task(
        float64=True, augmentation="none", feature_slice=False, replay_per_class=0
    )
    batch = batches(1, start=10)[0]
    network, previous = deepcopy(method.network), deepcopy(method.previous.network)
    forwards = watch(method)
    method.augment = lambda images: -images
    terms = stepper(method).step(batch)
    replayed = -forwards[1].images
    stored = method.normalise(method.memory.images)
    equal = (replayed[:, None] == stored[None]).flatten(2).all(dim=2)
    labels = method.memory.labels[equal.int().argmax(dim=1)]

    new, replay = rotations(method.normalise(batch.images), 4), rotations(replayed, 4)
    h = network.features(torch.cat([new, -new, replay, -replay]))
    z = normalize(network.project(h))
    z_new, z_replay = z[:80], z[80:]
    z_before = normalize(previous.project(previous.features(replay)))
    new_labels = torch.cat([batch.labels + 4 * q for q in range(4)])
    old_labels = torch.cat([labels + 4 * q for q in range(4)])
    logits, before = network(-replayed), previous(-replayed)
    expected = {
        "ins_new": losses.new_instance_loss(0.5 * z_new @ z_new.T, new_labels, 0.07),
        "ins_replay": losses.replay_instance_loss(0.5 * z_replay @ z_replay.T, old_labels, 0.07),
        "previous": losses.previous_instance_loss(
            z_replay[: len(old_labels)] @ z_before.T, old_labels, 0.07
        ),
        "ce": cross_entropy(logits, labels),
        "mse": (logits[:, :2] - before[:, :2]).square().mean(),
    }
    assert set(terms) == set(expected)
    for name, value in expected.items():
        torch.testing.assert_close(terms[name], value.detach())


def test_only_logits_of_classes_the_previous_network_knew_are_compared() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, before = (torch.randn(5, n, generator=generator) for n in (6, 4))
    known = torch.tensor([True, False, True, False])
    expected = (ours[:, [0, 2]] - before[:, [0, 2]]).square().mean()
    torch.testing.assert_close(losses.known_logits_error(ours, before, known), expected)
    assert losses.known_logits_error(ours, before, known & False) == 0


def test_classes_that_nobody_announced() -> None:
    method = learner("ocm", num_classes=None, **SMALL)
    for batch in batches(12):
        terms = stepper(method).step(replace(batch, task=None))
    assert method.network.classes == 4
    assert method.previous.classes < 4
    assert all(term.isfinite() for term in terms.values())


def test_a_class_given_up_counts_no_more() -> None:
    method = after_first_task()
    method.forget(0)
    assert method.previous.known.tolist() == [False, True, False, False]
    assert all(term.isfinite() for term in stepper(method).step(batches(1, start=10)[0]).values())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"learning_rate": 0.0}, "learning rate"),
        ({"instance_temperature": 0.0}, "temperature"),
        ({"similarity_scale": -1.0}, "similarity scale"),
        ({"replay_batch": 0}, "replay batch"),
        ({"projection": 512}, "projection"),
        ({"rotations": 3}, "rotations"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("ocm", word, **changes)
