"""DVC: two views in one forward, and replay of what a step changes most."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from onpro.methods.base import Labelled, total
from onpro.methods.dvc import DVCSettings
from onpro.nn.joint_head import JointHead
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


def test_forwards_of_new_candidates_twice_and_replay() -> None:
    method = learner("dvc", replay_batch=8, candidates=12)
    forwards = watch(method)
    for batch in batches(3):
        stepper(method).step(batch)
    sizes = [len(f.images) for f in forwards]
    assert sizes == [20, 20, 20, 20, 16, 20, 24, 24, 16]
    assert all(f.training for f in forwards)
    assert method.progress.images == sum(sizes)


def test_the_papers_setting_replays_all_candidates() -> None:
    method = learner("dvc")
    for batch in batches(9):
        stepper(method).step(batch)
    forwards = watch(method)
    terms = stepper(method).step(batches(1, start=9)[0])
    assert [len(f.images) for f in forwards] == [20, 100, 100]  # no virtual pass: no choice
    assert set(terms) == {"new", "replay"}


def test_replay_keeps_the_augmentation_it_was_judged_with() -> None:
    method = learner("dvc", replay_batch=8, candidates=12)
    first, second, third = batches(3)
    for batch in (first, second):
        stepper(method).step(batch)
    stored = method.normalise(method.memory.images)
    forwards = watch(method)
    stepper(method).step(third)
    new, judged, virtual, replay = (f.images for f in forwards)
    assert torch.equal(new[:10], method.normalise(third.images))
    assert torch.equal(judged, virtual)
    assert found_in(judged[:12], stored).all()
    pairs, kept = (torch.cat(views.chunk(2), dim=1) for views in (judged, replay))
    assert found_in(kept, pairs).all()


def test_one_draw_of_the_own_augmentation_for_the_whole_batch() -> None:
    method = learner("dvc", augmentation="dvc")
    image = method.normalise(batches(1)[0].images[:1])
    alike = method.augment(image.repeat(5, 1, 1, 1))
    torch.testing.assert_close(alike, alike[:1].expand_as(alike))
    each = learner("dvc").augment(image.repeat(5, 1, 1, 1))  # the common one is drawn for each
    assert not torch.allclose(each, each[:1].expand_as(each))


def reference(method: Any, first: Tensor, second: Tensor, joint: Tensor, labels: Tensor) -> Tensor:
    """The three parts, image by image and class by class."""
    views = [softmax(logits, dim=1) for logits in (first, second, joint)]
    entropy = sum(
        float(p.mean()) * float(p.mean().log()) for view in views for p in view.unbind(dim=1)
    )
    agreement = sum(float((views[2] - view).abs().sum()) for view in views[:2])
    ce = (cross_entropy(first, labels) + cross_entropy(second, labels)) / 2
    count = 2 * first.numel()
    settings: DVCSettings = method.settings
    return (
        settings.cross_entropy_weight * ce
        + settings.entropy_weight * entropy / 3
        + settings.agreement_weight * agreement / count
    )


def test_the_loss_has_three_parts() -> None:
    method = learner(
        "dvc",
        float64=True,
        augmentation="none",
        cross_entropy_weight=0.7,
        entropy_weight=1.3,
        agreement_weight=3.0,
    )
    batch = batches(1)[0]
    network, joint = deepcopy(method.network), deepcopy(method.joint)
    with torch.no_grad():
        logits = network(method.normalise(batch.images).repeat(2, 1, 1, 1))
        first, second = logits.chunk(2)
        expected = reference(method, first, second, joint(first, second), batch.labels)
    terms = stepper(method).step(batch)
    torch.testing.assert_close(terms["new"], expected)


def test_candidates_whose_gradient_grows_most_are_replayed() -> None:
    method = learner(
        "dvc", float64=True, augmentation="none", replay_batch=8, candidates=200, momentum=0.5
    )
    for batch in batches(6):
        stepper(method).step(batch)
    batch = batches(1, start=6)[0]
    stored, labels = method.normalise(method.memory.images), method.memory.labels.clone()
    ahead = deepcopy(method)
    new = Labelled(method.normalise(batch.images), batch.labels)
    loss = total(ahead.terms(new, new))
    gradients = torch.autograd.grad(loss, list(ahead.network.parameters()))

    def magnitude(network: Any) -> Tensor:
        """Of both views, which are equal here, the first."""
        with torch.no_grad():
            h = network.features(stored.repeat(2, 1, 1, 1))[: len(labels)]
            error = softmax(network.classifier(h), dim=1)
        error[torch.arange(len(labels)), labels] -= 1
        size: Tensor = error.abs().sum(dim=1) * h.abs().sum(dim=1)
        return size

    now = magnitude(deepcopy(method.network))
    stepped = deepcopy(method.network)
    with torch.no_grad():
        for parameter, gradient in zip(stepped.parameters(), gradients, strict=True):
            parameter -= 0.1 * gradient  # a plain step, though the optimizer has momentum
    expected = stored[(magnitude(stepped) - now).topk(8).indices]
    forwards = watch(method)
    stepper(method).step(batch)
    assert found_in(forwards[-1].images[:8], expected).all()


@pytest.mark.parametrize("replay_batch", [4, 6])
def test_candidates_move_the_running_statistics_once(replay_batch: int) -> None:
    method = learner(
        "dvc", float64=True, augmentation="none", replay_batch=replay_batch, candidates=6
    )
    for batch in batches(2):
        stepper(method).step(batch)
    batch = batches(1, start=2)[0]
    network = deepcopy(method.network)
    forwards = watch(method)
    stepper(method).step(batch)
    new, judged, *_, replay = (f.images for f in forwards)
    for images in (new, judged, replay):  # not the virtual pass
        network.features(images)
    for name, running in network.named_buffers():
        torch.testing.assert_close(method.network.get_buffer(name), running)


def test_one_step_down_both_gradients() -> None:
    method = learner("dvc", float64=True, augmentation="none", learning_rate=0.05)
    first, second = batches(2)
    stepper(method).step(first)
    network, joint = deepcopy(method.network), deepcopy(method.joint)
    ahead = deepcopy(method)
    ahead.network, ahead.joint = network, joint
    stored = Labelled(method.normalise(first.images), first.labels)
    new = Labelled(method.normalise(second.images), second.labels)
    loss = total(ahead.terms(new, new)) + total(ahead.terms(stored, stored))
    parameters = [*network.parameters(), *joint.parameters()]
    gradients = torch.autograd.grad(loss, parameters)
    stepper(method).step(second)
    after = [*method.network.parameters(), *method.joint.parameters()]
    for before, gradient, now in zip(parameters, gradients, after, strict=True):
        torch.testing.assert_close(now, before - 0.05 * gradient)


def test_the_joint_head_is_two_layers_on_both_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    head = JointHead(5, 128, generator=generator)
    assert head.inward.abs().max() <= 1 / 10**0.5
    assert head.inward.std().item() == pytest.approx((1 / 10**0.5) / 3**0.5, rel=0.1)
    first, second = (torch.randn(3, 5, generator=generator) for _ in range(2))
    weight = torch.cat([head.inward[:, 0], head.inward[:, 1]]).T
    hidden = torch.relu(torch.cat([first, second], dim=1) @ weight.T + head.bias)
    torch.testing.assert_close(head(first, second), head.outward(hidden))


def test_the_joint_head_grows_with_the_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    head = JointHead(2, 16, generator=generator)
    optimizer = torch.optim.SGD(head.parameters(), 0.1, momentum=0.9)
    first, second = (torch.randn(3, 2, generator=generator) for _ in range(2))
    head(first, second).sum().backward()
    optimizer.step()
    before = head(first, second)
    head.grow(5, generator=generator, optimizer=optimizer)
    padded = (torch.cat([view, torch.zeros(3, 3)], dim=1) for view in (first, second))
    after = head(*padded)
    torch.testing.assert_close(after[:, :2], before)
    assert after.shape == (3, 5)
    optimizer.zero_grad()
    after.sum().backward()
    optimizer.step()
    assert optimizer.state[head.inward]["momentum_buffer"].shape == (5, 2, 16)
    old = head.inward[1].clone()
    head.renew(1, generator=generator, optimizer=optimizer)
    assert not torch.equal(head.inward[1], old)
    assert (optimizer.state[head.inward]["momentum_buffer"][1] == 0).all()
    assert (optimizer.state[head.inward]["momentum_buffer"][0] != 0).any()


def test_classes_that_nobody_announced_and_one_given_up() -> None:
    method = learner("dvc", num_classes=None, candidates=5)
    for batch in batches(12):
        terms = stepper(method).step(replace(batch, task=None))
    assert method.joint.classes == method.network.classes == 4
    assert all(term.isfinite() for term in terms.values())
    method.forget(1)
    assert stepper(method).step(batches(1, start=12)[0])["replay"].isfinite()


def test_rotated_copies_are_classes_of_their_own() -> None:
    method = learner("dvc-rot", rotations=4, candidates=6, replay_batch=5)
    for batch in batches(2):
        stepper(method).step(batch)
    assert method.network.classifier.out_features == method.joint.classes == 16
    forwards = watch(method)
    stepper(method).step(batches(1, start=2)[0])
    assert [len(f.images) for f in forwards] == [80, 12, 12, 40]


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"candidates": 0}, "candidates"),
        ({"agreement_weight": -1.0}, "agreement"),
        ({"entropy_weight": -1.0}, "entropy"),
        ({"replay_batch": 0}, "replay batch"),
        ({"learning_rate": -0.1}, "learning rate"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("dvc", word, **changes)
