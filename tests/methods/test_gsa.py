"""GSA: a new set among the task's classes, a mixed set among all, classes weighted by gradients."""

import math
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from onpro.methods import settings_for
from onpro.methods.base import Labelled, Terms
from onpro.methods.gsa import GSA
from onpro.methods.parts.sets import joined, sample_of
from onpro.nn.optimizers import Adam, AdamW
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


class Noted(GSA):
    """GSA that notes the sets of each step, and the network before it."""

    def terms(self, new: Labelled, mixed: Labelled) -> Terms:
        self.sets = new, mixed
        self.before = deepcopy(self.network)
        return super().terms(new, mixed)


def noted(**changes: Any) -> Any:
    method = learner("gsa", float64=True, augmentation="none", **changes)
    method.__class__ = Noted
    return method


def counted(samples: Labelled) -> list[int]:
    return [label for label in samples.labels.tolist() if label >= 0]


def slow_probabilities(row: Tensor, classes: set[int]) -> dict[int, Tensor]:
    total = torch.stack([row[k].exp() for k in classes]).sum()
    return {k: row[k].exp() / total for k in classes}


def test_the_loss_is_that_of_a_slow_reference() -> None:
    method = noted(num_classes=6, learning_rate=1e-3, warm_up=2, replay_batch=12, new_replay=5)
    sums: dict[int, list[float]] = {k: [0.0, 0.0, 0.0] for k in range(6)}
    stream = [*batches(5, size=4), *batches(5, start=25, size=4)]
    for step, batch in enumerate(stream):
        terms = stepper(method).step(batch)
        new, mixed = method.sets
        task, in_task = step // 5, step % 5
        current, seen = ({0, 1}, {0, 1}) if task == 0 else ({2, 3}, {0, 1, 2, 3})
        both = torch.cat([new.images, new.images.flip(3)])
        losses = [
            -slow_probabilities(row, current)[label].log()
            for row, label in zip(
                method.before.logits(both), new.labels.repeat(2).tolist(), strict=True
            )
            if label >= 0
        ]
        torch.testing.assert_close(terms["new"], torch.stack(losses).mean().detach())
        if not step:
            assert set(terms) == {"new"}
            continue
        rows = method.before.logits(torch.cat([mixed.images, mixed.images.flip(3)]))
        weighted = []
        labels = mixed.labels.repeat(2).tolist()
        for row, label in zip(rows.detach(), labels, strict=True):
            if label < 0:
                continue
            for k, p in slow_probabilities(row, seen).items():
                sums[k][0] += k == label
                sums[k][1 if k == label else 2] += float(p)
        for row, label in zip(rows, labels, strict=True):
            if label < 0:
                continue
            count, positive, negative = sums[label]
            ratio = (count - positive) / negative
            weight = 1.0 if in_task < 2 else 2 / (1 + math.exp(1 - ratio))
            weighted.append(-weight * slow_probabilities(row, seen)[label].log())
        torch.testing.assert_close(terms["mixed"], 2 * torch.stack(weighted).mean().detach())


def test_classes_that_are_hardly_pushed_away_are_weighted_too() -> None:
    method = learner("gsa", warm_up=0)
    logits = torch.tensor([[9.0, 0.0, 1.0, 0.0], [0.0, 8.0, 0.0, 0.0]]).double()
    weights = method.class_weights(logits, torch.tensor([0, 1]), torch.tensor([True] * 3 + [False]))
    p, q = (slow_probabilities(row, {0, 1, 2}) for row in logits)
    ratios = [(1 - p[0]) / q[0], (1 - q[1]) / p[1], torch.zeros(()).double(), torch.ones(())]
    expected = [2 / (1 + math.exp(1 - ratio)) for ratio in ratios]
    torch.testing.assert_close(weights, torch.tensor(expected).double())


def test_the_sets_hold_what_they_should() -> None:
    method = noted(replay_batch=12, new_replay=5)
    stream = [*batches(3), *batches(3, start=10)]
    for batch in stream[:3]:
        stepper(method).step(batch)
    new, mixed = method.sets
    assert len(counted(new)) == 15  # the batch and 5 stored images
    assert torch.equal(new.labels[:10], stream[2].labels)
    assert torch.equal(mixed.labels, new.labels[:12])  # all classes are new
    stepper(method).step(stream[3])
    new, mixed = method.sets
    assert len(new.labels) == 15
    assert counted(new) == stream[3].labels.tolist()  # none of this task is stored
    assert found_in(new.images[10:], new.images[:10]).all()  # batch norm sees nothing else
    assert sorted(set(counted(mixed)[:6])) == [0, 1]  # half of the classes are old
    assert counted(mixed)[6:] == stream[3].labels[:6].tolist()
    stepper(method).step(stream[4])
    new, mixed = method.sets
    assert len(counted(new)) == 15
    assert set(counted(new)) == {2, 3}
    assert len(counted(mixed)) == 12


@pytest.mark.parametrize(("views", "copies"), [("independent", 2), ("mirrored", 2), ("single", 1)])
def test_two_forwards_of_images_and_mirrored_copies(views: str, copies: int) -> None:
    method = learner("gsa", replay_batch=12, new_replay=5, views=views)
    forwards = watch(method)
    for batch in batches(3):
        stepper(method).step(batch)
    assert [len(f.images) // copies for f in forwards] == [10, 15, 12, 15, 12]


def test_views_are_augmented_independently_or_mirrored_or_single() -> None:
    images = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    marked = []

    def augment(images: Tensor) -> Tensor:
        marked.append(len(images))
        return images + 1

    for views, expected in (("independent", [8, 8, 8]), ("mirrored", [4, 4]), ("single", [4, 4])):
        marked.clear()
        method = learner("gsa", views=views)
        method.augment = augment
        once, twice = method.views_of(images), method.views_of(images, twice=True)
        assert marked == expected
        assert torch.equal(once[4:], once[:4].flip(3)) or (views == "single" and len(once) == 4)
        assert torch.equal(twice, once + (views == "independent"))


def test_a_batch_of_old_classes_still_competes() -> None:
    """Without clean tasks, a batch has images of classes that are not of the current task."""
    method = learner("gsa")
    first, second = batches(1)[0], batches(1, start=10)[0]
    stepper(method).step(replace(first, task=None))
    stepper(method).step(replace(second, task=None))
    assert method.known.current.tolist() == [False, False, True, True]
    terms = stepper(method).step(replace(first, task=None))
    assert method.progress.task == 1
    assert 0 < float(terms["new"]) < 100


def test_sums_follow_growth_and_forgetting() -> None:
    method = learner("gsa", num_classes=None)
    for batch in (*batches(3), *batches(3, start=10)):
        stepper(method).step(replace(batch, task=None))
    assert method.sums.shape == (3, 4)
    assert (method.sums > 0).all()
    method.forget(1)
    assert not method.sums[:, 1].any()
    assert not method.known.seen[1]
    terms = stepper(method).step(replace(batches(1, start=15)[0], task=None))
    assert all(bool(term.isfinite()) for term in terms.values())


def test_samples_of_classes_that_are_not_stored_have_no_label() -> None:
    method = learner("gsa", memory=8)
    stepper(method).step(batches(1)[0])
    stored = method.memory.labels.tolist()
    classes = torch.tensor([True, False, False, False])
    found = sample_of(method, classes, 6)
    assert len(found.labels) == 6
    assert counted(found) == [0] * min(6, stored.count(0))
    assert counted(sample_of(method, ~classes & False, 6)) == []
    assert len(sample_of(method, classes, 0).labels) == 0
    rows = joined(sample_of(method, ~classes & False, 6))  # nothing counts
    assert rows.labels.tolist() == [-1] * 6


def test_rows_that_do_not_count_repeat_those_that_do() -> None:
    new = Labelled(torch.arange(2.0), torch.tensor([3, 1]))
    old = Labelled(torch.arange(2.0, 5.0), torch.tensor([2, -1, -1]))
    rows = joined(new, old)
    assert rows.images.tolist() == [0, 1, 2, 0, 1]
    assert rows.labels.tolist() == [3, 1, 2, -1, -1]


@pytest.mark.parametrize("head", ["trained", "frozen"])
def test_a_frozen_head_is_trained_in_the_first_task_only(head: str) -> None:
    method = learner("gsa", head=head, num_classes=6, learning_rate=0.01)
    classifier, bound = method.network.classifier, method.network.classifier.in_features**-0.5
    start = deepcopy(classifier.weight.detach())
    for batch in batches(10):
        stepper(method).step(batch)
    learned = classifier.weight.detach()[:2].clone()
    assert not torch.equal(learned, start[:2])
    stepper(method).step(batches(1, start=10)[0])
    twin = learner("gsa", head=head, num_classes=6, learning_rate=0.01)
    twin.load_state_dict(method.state_dict())
    now = classifier.weight.detach().clone()
    for one in (method, twin):
        stepper(one).step(batches(1, start=11)[0])
        assert torch.equal(one.network.classifier.weight, now) == (head == "frozen")
    if head == "frozen":
        assert torch.equal(now[:2], learned)
        assert (now[2:].abs().amax(dim=1) > 0.8 * bound).all()  # random, not decayed to 0
        assert (now[2:].abs() <= bound).all()


@pytest.mark.parametrize(
    ("recipe", "kind", "rate", "betas", "head", "views"),
    [
        ("original", Adam, 1e-3, (0.9, 0.99), "frozen", "independent"),
        ("port", AdamW, 5e-4, (0.9, 0.999), "trained", "mirrored"),
        ("port-mkd", Adam, 5e-4, (0.9, 0.999), "trained", "single"),
    ],
)
def test_recipes(
    recipe: str,
    kind: type[Adam | AdamW],
    rate: float,
    betas: tuple[float, float],
    head: str,
    views: str,
) -> None:
    settings: Any = settings_for("gsa", "cifar10", recipe)
    optimizer = settings.make_optimizer([torch.zeros(1, requires_grad=True)])
    assert isinstance(optimizer, kind)
    assert (optimizer.defaults["lr"], optimizer.defaults["betas"]) == (rate, betas)
    assert optimizer.defaults["weight_decay"] == (0 if recipe == "port-mkd" else 1e-4)
    assert (settings.head, settings.views) == (head, views)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"new_replay": -1}, "new replay"),
        ({"mix_weight": -1.0}, "mix weight"),
        ({"warm_up": -1}, "warm up"),
        ({"replay_batch": 0}, "replay batch"),
        ({"betas": (0.9, 1.0)}, "betas"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("gsa", word, **changes)
