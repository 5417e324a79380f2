"""ER with distillation, and with rotated copies as classes of their own."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from onpro.augment import rotations
from onpro.methods.er import ER, ERSettings
from onpro.training.check import (
    Property,
    predicting_changes_nothing,
    resuming_changes_nothing,
    unannounced_classes_and_boundaries_work,
)
from tests.methods.learners import DATA, batches, learner, refused, stepper, watch


@pytest.mark.parametrize("changes", [{"rotations": 4}, {"distillation": 10.0}])
@pytest.mark.parametrize(
    "holds",
    [
        resuming_changes_nothing,
        predicting_changes_nothing,
        unannounced_classes_and_boundaries_work,
    ],
)
def test_variants_have_the_properties_of_a_method(changes: dict[str, Any], holds: Property) -> None:
    holds(ER, ERSettings(encoder="slim", **changes))


def test_each_rotation_of_a_class_is_a_class() -> None:
    method = learner("er", rotations=16, augmentation="none")
    assert method.network.classifier.out_features == 64
    assert method.network.classes == 4
    batch = batches(1)[0]
    network = deepcopy(method.network)
    losses = []
    for q, block in enumerate(rotations(method.normalise(batch.images), 16).split(10)):
        for image, label in zip(block, batch.labels.tolist(), strict=True):
            losses.append((image, 16 * label + q))
    images = torch.stack([image for image, _ in losses])
    logits = network.classifier(network.features(images))
    expected = cross_entropy(logits, torch.tensor([output for _, output in losses]))
    terms = stepper(method).step(batch)
    torch.testing.assert_close(terms["new"], expected.detach())


def test_new_and_replayed_images_are_rotated_and_then_augmented() -> None:
    method = learner("er", rotations=4)
    forwards = watch(method)
    for batch in batches(2):
        stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [40, 40, 40]
    first = method.normalise(batches(1)[0].images)
    assert not torch.equal(forwards[0].images, rotations(first, 4))


def test_images_that_are_not_rotated_are_predicted() -> None:
    method = learner("er", rotations=4)
    stepper(method).step(batches(1)[0])
    network = deepcopy(method.network).eval()
    images = method.normalise(DATA.test.images)
    logits = network.classifier(network.features(images)).detach()
    scores = method.scores(DATA.test.images)
    torch.testing.assert_close(scores, logits[:, [0, 4, 8, 12]])


def test_outputs_keep_their_meaning_when_classes_appear() -> None:
    method = learner("er", rotations=4, num_classes=None)
    for batch in batches(10):
        stepper(method).step(replace(batch, task=None))
    before = method.network.classifier.weight.detach().clone()
    assert before.shape[0] == 8
    method.grow(4)
    assert method.network.classifier.out_features == 16
    assert torch.equal(method.network.classifier.weight[:8].detach(), before)


def test_a_class_is_given_up_in_all_its_rotations() -> None:
    method = learner("er", rotations=4)
    for batch in batches(3):
        stepper(method).step(batch)
    before = method.network.classifier.weight.detach().clone()
    method.forget(1)
    changed = (method.network.classifier.weight.detach() != before).any(dim=1)
    assert changed.nonzero().flatten().tolist() == [4, 5, 6, 7]


def test_features_are_kept_near_those_of_the_network_after_the_last_task() -> None:
    method = learner("er", float64=True, distillation=10.0, augmentation="none", replay_batch=200)
    stream = batches(11)
    for batch in stream[:10]:
        assert "distillation" not in stepper(method).step(batch)
    stepper(method).finish_task()
    teacher = deepcopy(method.network).eval()
    student = deepcopy(method.network)
    parts = [method.normalise(stream[10].images), method.normalise(method.memory.images)]
    distance = torch.stack(
        [(student.features(p) - teacher.features(p)).square().sum() for p in parts]
    )
    before = deepcopy(method.teacher.network.state_dict())
    images = method.progress.images
    terms = stepper(method).step(stream[10])
    expected = 10 * distance.sum().sqrt().detach()  # one norm over both batches, no mean
    torch.testing.assert_close(terms["distillation"], expected)
    torch.testing.assert_close(method.teacher.network.state_dict(), before, rtol=0, atol=0)
    assert method.progress.images == images + 2 * 110


@pytest.mark.parametrize(
    ("changes", "word"), [({"distillation": -1.0}, "distillation"), ({"rotations": 3}, "rotations")]
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("er", word, **changes)
