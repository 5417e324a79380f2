"""PCR: images against the proxies of the images of their step."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from onpro.losses import proxy_contrast
from onpro.methods import settings_for
from tests.methods.learners import DATA, batches, found_in, learner, refused, stepper, watch


def slow_loss(features: Tensor, weight: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """For each image, all proxies of all images, one by one."""
    losses = []
    for row, label in zip(features, labels.tolist(), strict=True):
        proxies = [cosine_similarity(row, weight[k], dim=0) / temperature for k in labels.tolist()]
        own = cosine_similarity(row, weight[label], dim=0) / temperature
        losses.append(torch.stack(proxies).logsumexp(0) - own)
    return torch.stack(losses).mean()


def test_a_step_contrasts_two_views_with_the_proxies_of_all_images() -> None:
    method = learner("pcr", float64=True, augmentation="none")
    first, second = batches(2)
    assert stepper(method).step(first) == {}  # nothing is stored
    network = deepcopy(method.network)
    new, old = method.normalise(second.images), method.normalise(method.memory.images)
    stored = method.memory.labels.clone()
    features = torch.cat([network.features(torch.cat([part, part])) for part in (new, old)])
    labels = torch.cat([second.labels, second.labels, stored, stored])
    expected = slow_loss(features, network.classifier.weight, labels, 0.09)
    terms = stepper(method).step(second)
    torch.testing.assert_close(terms["proxy"], expected.detach(), rtol=1e-5, atol=1e-6)
    assert set(terms) == {"proxy"}


def test_one_forward_of_both_views_of_new_images_then_of_replay() -> None:
    method = learner("pcr", replay_batch=12)
    forwards = watch(method)
    for batch in batches(3):
        stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [20, 20, 20, 24]
    new = method.normalise(batches(3)[2].images)
    assert torch.equal(forwards[2].images[:10], new)
    assert not found_in(forwards[2].images[10:], new).any()
    assert found_in(forwards[3].images[:12], method.normalise(DATA.train.images)).all()


def test_classes_without_an_image_in_the_step_do_not_compete() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=generator, dtype=torch.float64).requires_grad_()
    labels = torch.tensor([1, 1, 3, 1, 3, 0])
    proxy_contrast(logits, labels).backward()
    assert logits.grad is not None
    assert not logits.grad[:, [2, 4]].any()
    assert logits.grad[:, [0, 1, 3]].all()


def test_unseen_classes_are_never_predicted() -> None:
    method = learner("pcr", num_classes=6)
    for batch in batches(2):
        stepper(method).step(batch)
    scores = method.scores(DATA.test.images)
    assert scores.shape == (len(DATA.test.labels), 6)
    assert scores[:, :2].isfinite().all()
    assert (scores[:, 2:] == -torch.inf).all()


def test_the_proxies_grow_without_a_bias() -> None:
    method = learner("pcr", num_classes=None)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(method).step(replace(batch, task=None))
    names = [name for name, _ in method.network.classifier.named_parameters()]
    assert names == ["weight"]
    assert method.network.classifier.weight.shape == (4, 160)
    before = method.network.classifier.weight.detach().clone()
    method.forget(2)
    changed = (method.network.classifier.weight != before).any(dim=1)
    assert changed.tolist() == [False, False, True, False]


def test_the_recipe_is_the_official_code() -> None:
    settings: Any = settings_for("pcr", "cifar10", "original")
    assert (settings.optimizer, settings.learning_rate) == ("sgd", 0.1)
    assert (settings.augmentation, settings.replay_batch) == ("scr", 10)
    assert settings.encoder == "resnet18-nf20"


@pytest.mark.parametrize(("changes", "word"), [({"temperature": 0.0}, "temperature")])
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("pcr", word, **changes)
