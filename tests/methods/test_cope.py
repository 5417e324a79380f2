"""CoPE: the loss, slowly moving prototypes, and what they are moved by."""

from copy import deepcopy
from dataclasses import replace
from math import exp, log
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro import losses
from tests.methods.learners import DATA, batches, found_in, learner, refused, stepper, watch

SMALL: dict[str, Any] = {"embedding": 16, "learning_rate": 0.05, "temperature": 0.1}


def ppp(v: Tensor, labels: list[int], p: Tensor, known: list[int], temperature: float) -> float:
    """The loss by its definition, pair by pair."""

    def pi(i: int, w: Tensor, k: int) -> float:
        others = sum(exp(float(v[i] @ p[other]) / temperature) for other in known if other != k)
        own = exp(float(v[i] @ w) / temperature)
        return own / (own + others)

    loss = 0.0
    for k in set(labels):
        members = [i for i, y in enumerate(labels) if y == k]
        for i in members:
            near = sum(pi(i, v[j], k) for j in members if j != i) + pi(i, p[k], k)
            loss -= log(near / len(members))
        for i in [i for i, y in enumerate(labels) if y != k]:
            for j in members:
                loss -= log(1 - (pi(i, v[j], k) + pi(i, p[k], k)) / 2)
    return loss / len(labels)


def vectors(count: int, dimension: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(count, dimension, generator=generator))


@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_the_loss_is_that_of_the_definition(temperature: float) -> None:
    v, p = vectors(7, 5, seed=0), 0.8 * vectors(6, 5, seed=1)
    labels, known = [0, 2, 2, 4, 0, 2, 4], [0, 2, 3, 4]
    mask = torch.tensor([k in known for k in range(6)])
    loss = losses.pseudo_prototypical_loss(v, torch.tensor(labels), p, mask, temperature)
    assert loss.item() == pytest.approx(ppp(v, labels, p, known, temperature), rel=1e-5)


def test_images_without_a_class_take_no_part_in_the_loss() -> None:
    v, p = vectors(6, 5, seed=2).requires_grad_(), vectors(3, 5, seed=3)
    known = torch.ones(3, dtype=torch.bool)
    labels = torch.tensor([0, 1, -1, 2, 1, -1])
    kept = labels >= 0
    loss = losses.pseudo_prototypical_loss(v, labels, p, known, 0.5)
    alone = losses.pseudo_prototypical_loss(v[kept], labels[kept], p, known, 0.5)
    torch.testing.assert_close(loss, alone)
    loss.backward()
    assert v.grad is not None
    assert (v.grad[~kept] == 0).all()


def test_the_loss_is_finite_where_images_and_prototypes_coincide() -> None:
    v = torch.eye(3)[[0, 0, 1]].requires_grad_()
    known = torch.ones(3, dtype=torch.bool)
    loss = losses.pseudo_prototypical_loss(v, torch.tensor([0, 1, 1]), torch.eye(3), known, 0.02)
    loss.backward()
    assert loss.isfinite()
    assert v.grad is not None
    assert v.grad.isfinite().all()


def test_one_forward_of_new_and_replayed_images() -> None:
    method = learner("cope", **SMALL)
    forwards = watch(method)
    for batch in batches(8):
        stepper(method).step(batch)
    sizes = [len(f.images) for f in forwards]
    assert sizes == [10, 20, 30, 40, 50, 60, 70, 74]
    assert method.progress.images == sum(sizes)


def test_a_single_class_takes_no_step() -> None:
    method = learner("cope", **SMALL)
    first = batches(1)[0]
    zeros = first.labels == 0
    alone = replace(first, images=first.images[zeros], labels=first.labels[zeros], classes=(0,))
    weights = deepcopy(dict(method.network.named_parameters()))
    prototype = method.network.prototypes.clone()
    assert stepper(method).step(alone) == {}
    assert all(torch.equal(p, weights[n]) for n, p in method.network.named_parameters())
    assert not torch.equal(method.network.prototypes[0], prototype[0])  # but the prototype moves
    assert set(stepper(method).step(first)) == {"ppp"}


def test_prototypes_move_by_embeddings_from_before_the_step() -> None:
    method = learner("cope", float64=True, augmentation="none", prototype_momentum=0.8, **SMALL)
    first, second = batches(2)
    stepper(method).step(first)
    network = deepcopy(method.network)
    forwards = watch(method)
    stepper(method).step(second)
    images = forwards[0].images
    stored = method.normalise(first.images)
    drawn = (images[10:, None] == stored[None]).flatten(2).all(dim=2).int().argmax(dim=1)
    labels = torch.cat([second.labels, first.labels[drawn]])
    with torch.no_grad():
        v = normalize(network.project(network.features(images)))
    expected = network.prototypes.clone()
    for k in labels.unique().tolist():
        expected[k] = 0.8 * expected[k] + 0.2 * v[labels == k].mean(dim=0)
    torch.testing.assert_close(method.network.prototypes, expected)
    assert (method.network.prototypes[:2].norm(dim=1) < 1).all()  # not brought back to length 1
    assert torch.equal(method.network.prototypes[2:], network.prototypes[2:])


def test_prototypes_begin_as_directions_between_the_axes() -> None:
    prototypes = learner("cope").network.prototypes
    torch.testing.assert_close(prototypes.norm(dim=1), torch.ones(4))
    assert (prototypes >= 0).all()
    assert not torch.equal(prototypes[0], prototypes[1])


def test_the_class_whose_prototype_is_most_alike_is_predicted() -> None:
    method = learner("cope", **SMALL)
    for batch in batches(5):
        stepper(method).step(batch)
    scores = method.scores(batches(1)[0].images)
    assert (scores[:, 2:] == -torch.inf).all()  # not seen yet
    network = deepcopy(method.network).eval()
    with torch.no_grad():
        features = network.features(method.normalise(batches(1)[0].images))
        v = normalize(network.project(features))
    torch.testing.assert_close(scores[:, :2], v @ method.network.prototypes[:2].T)


def test_classes_share_the_memory() -> None:
    method = learner("cope", memory=20, **SMALL)
    for batch in batches(12):
        stepper(method).step(batch)
    assert method.memory.quota == 5
    assert method.memory.stored.tolist() == [5, 5, 5, 5]
    slots, _ = method.memory.sample(20, torch.Generator().manual_seed(0))
    assert found_in(method.memory.take(slots).images, DATA.train.images).all()


def test_the_embedding_has_a_dimension_for_each_class_or_the_one_given() -> None:
    assert learner("cope").network.prototypes.shape == (4, 4)
    assert learner("cope", embedding=7).network.prototypes.shape == (4, 7)
    assert learner("cope", num_classes=None).network.prototypes.shape == (0, 256)


def test_classes_that_nobody_announced() -> None:
    method = learner("cope", num_classes=None, **SMALL)
    for batch in batches(12):
        stepper(method).step(replace(batch, task=None))
    assert method.network.prototypes.shape == (4, 16)
    assert method.network.known.all()


def test_a_class_given_up_has_neither_images_nor_a_prototype() -> None:
    method = learner("cope", **SMALL)
    for batch in batches(3):
        stepper(method).step(batch)
    method.forget(0)
    assert method.memory.classes == [1]
    assert (method.scores(batches(1)[0].images)[:, 0] == -torch.inf).all()
    assert stepper(method).step(batches(1, start=3)[0])["ppp"].isfinite()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": 0.01}, "temperature"),
        ({"prototype_momentum": 1.1}, "momentum"),
        ({"embedding": -1}, "embedding"),
        ({"replay_batch": 0}, "replay batch"),
        ({"memory": 3}, "4 classes"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("cope", word, **changes)
