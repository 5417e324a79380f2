"""HPCR: PCR with a cyclic weight, and stored logits and features recalled from the second task."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from onpro.losses import label_logits_error, proxy_contrast, relation_cross_entropy
from onpro.methods import settings_for
from tests.methods.learners import DATA, batches, found_in, learner, refused, stepper, watch


def slow_relations(features: Tensor, stored: Tensor, temperature: float) -> Tensor:
    losses = []
    for i in range(len(features)):
        others = [j for j in range(len(features)) if j != i]
        now, before = (
            torch.stack([cosine_similarity(x[i], x[j], dim=0) / temperature for j in others])
            for x in (features, stored)
        )
        losses.append(-(before.softmax(0) * now.log_softmax(0)).sum())
    return torch.stack(losses).mean()


def test_the_terms_are_those_of_a_slow_reference() -> None:
    method = learner("hpcr", float64=True, augmentation="none", replay_batch=200, logit_weight=0.3)
    stream = [*batches(2, size=4), *batches(2, start=25, size=4)]
    for step, batch in enumerate(stream):
        network = deepcopy(method.network)
        memory, labels = method.memory, method.memory.labels.clone()
        fields = {name: values.clone().double() for name, values in memory.fields.items()}
        stored = method.normalise(memory.images)
        terms = stepper(method).step(batch)
        if not step:
            assert terms == {}
            continue
        new = method.normalise(batch.images)
        of_new = network.features(torch.cat([new, new]))
        of_old = network.features(torch.cat([stored, stored]))
        logits = network.classifier(of_old)
        every = torch.cat([batch.labels, batch.labels, labels, labels])
        contrast = proxy_contrast(torch.cat([network.classifier(of_new), logits]), every)
        in_task = step % 2
        weight = 0.5625 + (1.8 - 0.5625) * 0.5 * (1 - math.cos(2 * math.pi * in_task / 500))
        torch.testing.assert_close(terms["proxy"], (weight * contrast).detach(), rtol=1e-5, atol=0)
        assert ("logits" in terms) == ("relations" in terms) == (step > 1)
        if step > 1:
            gaps = logits[:, every] - torch.cat([fields["logits"]] * 2)[:, every]
            expected = (0.3 * gaps.square().mean()).detach()
            torch.testing.assert_close(terms["logits"], expected)
            both = torch.cat([fields["features"]] * 2)
            related = 0.5 * slow_relations(of_old, both, 0.09)
            torch.testing.assert_close(terms["relations"], related.detach())


def test_losses_have_gradients_of_the_slow_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(5, 6, generator=generator).double().requires_grad_()
    stored = torch.randn(5, 6, generator=generator).double()
    fast = torch.autograd.grad(relation_cross_entropy(features, stored, 0.2), features)
    slow = torch.autograd.grad(slow_relations(features, stored, 0.2), features)
    torch.testing.assert_close(fast, slow)
    labels = torch.tensor([1, 1, 4])
    fast = torch.autograd.grad(label_logits_error(features, stored, labels), features)
    slow = torch.autograd.grad((features - stored)[:, labels].square().mean(), features)
    torch.testing.assert_close(fast, slow)


def test_logits_and_features_are_those_of_the_raw_image_before_the_step() -> None:
    method = learner("hpcr")
    forwards = watch(method)
    for batch in batches(2):
        before = deepcopy(method.network).train()
        stepper(method).step(batch)
    images = forwards[1].images
    assert torch.equal(images[:10], method.normalise(batches(2)[1].images))
    features = before.features(images)[:10].detach()
    torch.testing.assert_close(method.memory.fields["features"][10:], features)
    expected = before.classifier(features).detach()
    torch.testing.assert_close(method.memory.fields["logits"][10:], expected)


def test_one_forward_of_both_views_of_new_images_then_of_replay() -> None:
    method = learner("hpcr", replay_batch=12)
    forwards = watch(method)
    for batch in batches(3):
        stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [20, 20, 20, 20, 24]
    assert found_in(forwards[4].images[:12], method.normalise(DATA.train.images)).all()


def test_the_weight_of_the_contrast_rises_and_falls() -> None:
    method = learner("hpcr")
    weights = []
    for steps in (0, 125, 250, 500):
        method.task_steps.count.fill_(steps)
        weights.append(float(method.contrast_weight()))
    assert weights == pytest.approx([0.5625, (0.5625 + 1.8) / 2, 1.8, 0.5625])
    method.start_task()
    assert int(method.task_steps.count) == 0


def test_unseen_classes_are_never_predicted() -> None:
    method = learner("hpcr", num_classes=6)
    for batch in batches(2):
        stepper(method).step(batch)
    scores = method.scores(DATA.test.images)
    assert scores[:, :2].isfinite().all()
    assert (scores[:, 2:] == -torch.inf).all()


def test_stored_logits_grow_and_are_forgotten() -> None:
    method = learner("hpcr", num_classes=None)
    for batch in (*batches(2), *batches(2, start=10)):
        terms = stepper(method).step(replace(batch, task=None))
    assert all(bool(term.isfinite()) for term in terms.values())
    logits = method.memory.fields["logits"]
    assert logits.shape == (40, 4)
    assert not logits[method.memory.labels < 2][:, 2:].any()  # classes nobody knew of
    method.forget(1)
    assert not method.memory.fields["logits"][:, 1].any()


def test_settings_of_the_data_and_of_the_official_code() -> None:
    cifar10: Any = settings_for("hpcr", "cifar10", "original")
    assert (cifar10.logit_weight, cifar10.optimizer, cifar10.learning_rate) == (0.01, "sgd", 0.1)
    cifar100: Any = settings_for("hpcr", "cifar100")
    assert (cifar100.logit_weight, cifar100.optimizer) == (0.1, "adam")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"least_weight": 2.0}, "largest weight"),
        ({"least_weight": -0.1}, "least weight"),
        ({"largest_weight": 0.0, "least_weight": 0.0}, "largest weight"),
        ({"logit_weight": -1.0}, "logit weight"),
        ({"relation_weight": -1.0}, "relation weight"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("hpcr", word, **changes)
