"""SCR: two views in two forwards, and the nearest mean of the memory."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.methods import Labelled
from onpro.streams import Batch
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


def supcon(z: Tensor, labels: Tensor, temperature: float) -> float:
    """The loss by its definition, anchor by anchor."""
    losses = []
    for i in range(len(z)):
        others = [k for k in range(len(z)) if k != i]
        denominator = sum(float((z[i] @ z[k] / temperature).exp()) for k in others)
        positives = [p for p in others if labels[p] == labels[i]]
        terms = [
            float(z[i] @ z[p] / temperature) - float(torch.tensor(denominator).log())
            for p in positives
        ]
        losses.append(-sum(terms) / len(terms))
    return sum(losses) / len(losses)


def test_the_first_batch_is_only_stored() -> None:
    method = learner("scr")
    before = deepcopy(method.network.state_dict())
    forwards = watch(method)
    first, second = batches(2)
    assert stepper(method).step(first) == {}
    assert not forwards
    assert all(torch.equal(v, before[n]) for n, v in method.network.state_dict().items())
    assert torch.equal(method.memory.images, first.images)
    assert set(stepper(method).step(second)) == {"supcon"}


def test_two_forwards_of_replayed_and_new_images() -> None:
    method = learner("scr", replay_batch=16)
    first, second, third = batches(3)
    for batch in (first, second):
        stepper(method).step(batch)
    forwards = watch(method)
    before = method.progress.images
    stepper(method).step(third)
    raw, varied = (f.images for f in forwards)
    assert len(raw) == len(varied) == 26
    assert method.progress.images - before == 52
    assert all(f.training for f in forwards)
    stored = method.normalise(torch.cat([first.images, second.images]))
    assert found_in(raw[:16], stored).all()
    assert torch.equal(raw[16:], method.normalise(third.images))  # the first view is the image
    assert not found_in(varied, raw).any()


def test_the_loss_is_supcon_over_both_views() -> None:
    method = learner(
        "scr", float64=True, augmentation="none", projection=16, temperature=0.2, replay_batch=4
    )
    first, second = batches(2, size=5)
    stepper(method).step(first)
    network = deepcopy(method.network)
    forwards = watch(method)
    terms = stepper(method).step(second)
    images = forwards[0].images
    stored = method.normalise(first.images)
    drawn = (images[:4, None] == stored[None]).flatten(2).all(dim=2).int().argmax(dim=1)
    labels = torch.cat([first.labels[drawn], second.labels]).repeat(2)
    with torch.no_grad():
        z = torch.cat([normalize(network.project(network.features(images))) for _ in range(2)])
    assert terms["supcon"].item() == pytest.approx(supcon(z, labels, 0.2))


def test_the_nearest_class_mean_of_the_memory_is_predicted() -> None:
    method = learner("scr", float64=True, augmentation="none", memory=30)
    stream = batches(14)
    for batch in stream:
        stepper(method).step(batch)
    images = torch.cat([batch.images for batch in stream])
    network = deepcopy(method.network).eval()
    with torch.no_grad():
        h = normalize(network.features(method.normalise(images)))
        stored = normalize(network.features(method.normalise(method.memory.images)))
    means = torch.stack(
        [normalize(stored[method.memory.labels == k].mean(dim=0), dim=0) for k in range(4)]
    )
    expected = torch.cdist(h, means).argmin(dim=1)
    assert torch.equal(method.predict(images), expected)


def test_a_seen_class_without_a_stored_image_competes_by_a_random_direction() -> None:
    method = learner("scr", memory=30)
    for batch in batches(11):
        stepper(method).step(batch)
    method.memory.labels.fill_(0)
    scores = method.scores(batches(1)[0].images)
    assert scores[:, sorted(method.progress.seen)].isfinite().all()
    assert (scores[:, :2] <= 0).all()


def test_a_forgotten_class_without_a_stored_image_no_longer_competes() -> None:
    method = learner("scr", projection=16)
    stepper(method).step(batches(1)[0])
    method.memory.labels.fill_(1)
    images = batches(1)[0].images
    assert method.scores(images)[:, 0].isfinite().all()
    stepper(method).forget(0)
    assert method.scores(images).argmax(dim=1).tolist() == [1] * 10


def test_a_review_goes_through_the_memory_in_whole_batches_with_a_tenth_of_the_gradient() -> None:
    changes: dict[str, Any] = {"replay_batch": 8, "augmentation": "none", "projection": 16}
    method = learner("scr", review=True, **changes)
    for batch in batches(3):
        stepper(method).step(batch)
    network = deepcopy(method.network)
    forwards = watch(method)
    stepper(method).finish_task()
    assert [len(f.images) for f in forwards] == [8, 8] * 3  # of 30 stored images 24
    first = forwards[0].images
    stored = method.normalise(method.memory.images)
    reviewed = torch.cat([f.images for f in forwards[::2]])
    equal = (reviewed[:, None] == stored[None]).flatten(2).all(dim=2)
    assert (equal.sum(dim=0) <= 1).all()

    labels = method.memory.labels[equal[:8].int().argmax(dim=1)]
    again = learner("scr", learning_rate=0.01, **changes)  # a tenth of 0.1
    again.network.load_state_dict(network.state_dict())
    again.minimise(again.terms(Labelled(first, labels)))
    one_step = learner("scr", review=True, **changes)
    one_step.network.load_state_dict(network.state_dict())
    one_step.normalise = lambda images: images
    one_step.rehearse(Batch(first, labels, task=None, classes=()))
    for ours, expected in zip(
        one_step.network.parameters(), again.network.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, expected)


def test_a_memory_of_less_than_a_batch_is_not_reviewed() -> None:
    """Not even by a step on no image, in which momentum would move the weights."""
    method = learner("scr", review=True, momentum=0.9, projection=16)
    for batch in batches(3):
        stepper(method).step(batch)
    before, forwards = deepcopy(method.network.state_dict()), watch(method)
    stepper(method).finish_task()
    assert not forwards
    torch.testing.assert_close(method.network.state_dict(), before, rtol=0, atol=0)


def test_no_review_unless_asked_for() -> None:
    method = learner("scr")
    for batch in batches(3):
        stepper(method).step(batch)
    forwards = watch(method)
    stepper(method).finish_task()
    assert not forwards


def test_rotated_copies_are_classes_of_their_own() -> None:
    method = learner("scr-rot", rotations=4, replay_batch=6)
    for batch in batches(2):
        stepper(method).step(batch)
    forwards = watch(method)
    stepper(method).step(batches(1, start=2)[0])
    assert [len(f.images) for f in forwards] == [64, 64]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"projection": -1}, "projection"),
        ({"replay_batch": 0}, "replay batch"),
        ({"augmentation": "scrr"}, "scr"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("scr", word, **changes)
