"""DER++: stored logits and labels, in two independent draws."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

from onpro.methods.derpp import DERppSettings
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


def test_three_forwards_of_new_and_two_replay_batches() -> None:
    method = learner("derpp", replay_batch=12, augmentation="none")
    forwards = watch(method)
    for batch in batches(4):
        stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [10, 10, 10, 10, 10, 12, 12, 10, 12, 12]
    first, second = forwards[-2:]
    assert not found_in(first.images, second.images).all()  # drawn independently


def test_the_loss_has_three_weighted_terms() -> None:
    method = learner(
        "derpp",
        float64=True,
        augmentation="none",
        replay_batch=200,
        logit_weight=0.3,
        label_weight=0.7,
    )
    first, second, third = batches(3)
    assert set(stepper(method).step(first)) == {"new"}
    stepper(method).step(second)
    network = deepcopy(method.network)
    stored, labels = method.normalise(method.memory.images), method.memory.labels.clone()
    logits = method.memory.fields["logits"].clone()
    of_new = cross_entropy(network(method.normalise(third.images)), third.labels)
    recalled = mse_loss(network(stored), logits.double())
    relearned = cross_entropy(network(stored), labels)
    loss = of_new + 0.3 * recalled + 0.7 * relearned
    gradients = torch.autograd.grad(loss, list(network.parameters()))

    terms = stepper(method).step(third)
    torch.testing.assert_close(sum(terms.values()), loss.detach())
    torch.testing.assert_close(terms["logits"], 0.3 * recalled.detach())
    after = dict(method.network.named_parameters())
    for (name, before), gradient in zip(network.named_parameters(), gradients, strict=True):
        expected = before.detach() - 0.03 * gradient
        torch.testing.assert_close(after[name].detach(), expected)


def test_logits_are_those_of_the_augmented_image_in_train_mode_before_the_step() -> None:
    method = learner("derpp")
    first, second = batches(2)
    stepper(method).step(first)
    before = deepcopy(method.network).train()
    forwards = watch(method)
    stepper(method).step(second)
    augmented = forwards[0].images
    assert not torch.equal(augmented, method.normalise(second.images))
    stored = method.memory.fields["logits"][10:]
    torch.testing.assert_close(stored, before(augmented).detach())
    assert torch.equal(method.memory.images[10:], second.images)


def test_the_reservoir_is_exact() -> None:
    kept = []
    for seed in range(12):
        method = learner("derpp", memory=10, seed=seed)
        first, second = batches(2)
        stepper(method).step(first)
        stepper(method).step(second)
        kept.append(bool(found_in(second.images[-1:], method.memory.images)))
    assert not all(kept)  # a batch reservoir would always take the batch after the first
    assert any(kept)


def test_stored_logits_grow_with_the_classes() -> None:
    method = learner("derpp", num_classes=None, augmentation="none")
    for batch in batches(12):
        terms = stepper(method).step(replace(batch, task=None))
    assert all(bool(term.isfinite()) for term in terms.values())
    logits = method.memory.fields["logits"]
    assert logits.shape == (120, 4)
    old = method.memory.labels < 2
    assert not logits[old][:, 2:].any()  # classes nobody knew of
    assert logits[~old].all()


def test_a_class_given_up_is_not_recalled() -> None:
    method = learner("derpp")
    for batch in batches(12):
        stepper(method).step(batch)
    method.forget(1)
    assert not method.memory.fields["logits"][:, 1].any()
    assert method.memory.fields["logits"][:, 0].all()


def test_its_own_augmentation_comes_before_the_common_one() -> None:
    assert DERppSettings().augmentation == "crop+ocm"


@pytest.mark.parametrize(
    ("changes", "word"),
    [({"logit_weight": -0.1}, "logit weight"), ({"label_weight": -1.0}, "label weight")],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("derpp", word, **changes)
