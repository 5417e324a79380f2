"""ER-ACE: new images compete with the classes of their batch and unseen ones, replay with all."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.losses import masked_cross_entropy
from onpro.methods import Labelled, settings_for
from onpro.methods.parts.known import KnownClasses, outputs_of
from tests.methods.learners import batches, learner, stepper, watch


def slow_loss(logits: Tensor, labels: Tensor, competing: set[int]) -> Tensor:
    """CE of each image over a list of classes."""
    losses = []
    for row, label in zip(logits, labels.tolist(), strict=True):
        others = torch.stack([row[k] for k in sorted(competing)])
        losses.append(others.logsumexp(0) - row[label])
    return torch.stack(losses).mean()


def only(batch: Any, *labels: int) -> Any:
    """The images of a batch that have one of the labels."""
    kept = torch.isin(batch.labels, torch.tensor(labels))
    return replace(
        batch, images=batch.images[kept], labels=batch.labels[kept], classes=tuple(sorted(labels))
    )


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_new_images_compete_with_present_and_unseen_classes(head: str) -> None:
    method = learner("erace", float64=True, num_classes=6, augmentation="none", head=head)
    first, second, third = *batches(2), batches(1, start=10)[0]
    stepper(method).step(first)
    stepper(method).step(second)
    network = deepcopy(method.network)
    stored, labels = method.normalise(method.memory.images), method.memory.labels.clone()
    new = only(third, 3)
    terms = stepper(method).step(new)
    # 0 and 1 are seen and absent; 3 is present; 2, 4 and 5 are unseen.
    logits = network.logits(method.normalise(new.images))
    expected = slow_loss(logits, new.labels, {2, 3, 4, 5})
    torch.testing.assert_close(terms["new"], expected.detach())
    torch.testing.assert_close(
        terms["replay"], cross_entropy(network.logits(stored), labels).detach()
    )
    again = only(second, 1)
    logits = deepcopy(method.network).logits(method.normalise(again.images))
    terms = stepper(method).step(again)
    torch.testing.assert_close(terms["new"], slow_loss(logits, again.labels, {1, 2, 4, 5}).detach())


def test_new_images_leave_the_outputs_of_absent_classes_alone() -> None:
    method = learner("erace", float64=True, augmentation="none")
    stepper(method).step(batches(1)[0])
    method.memory.fill = 0  # no replay
    weight = method.network.classifier.weight.detach().clone()
    method.optimizer = torch.optim.SGD(method.network.parameters(), 0.1)
    stepper(method).step(only(batches(2)[1], 1))
    changed = (method.network.classifier.weight.detach() != weight).any(dim=1)
    assert changed.tolist() == [False, True, True, True]


def test_unseen_classes_need_not_compete() -> None:
    method = learner(
        "erace", float64=True, num_classes=6, augmentation="none", unseen_compete=False
    )
    for batch, present in ((batches(1)[0], {0, 1}), (only(batches(1, start=10)[0], 3), {3})):
        logits = deepcopy(method.network).logits(method.normalise(batch.images))
        terms = stepper(method).step(batch)
        torch.testing.assert_close(
            terms["new"], slow_loss(logits, batch.labels, present).detach(), atol=1e-12, rtol=1e-12
        )


def test_two_forwards_new_then_replay() -> None:
    method = learner("erace", replay_batch=12)
    forwards = watch(method)
    first, second, third = batches(3)
    assert set(stepper(method).step(first)) == {"new"}
    assert set(stepper(method).step(second)) == {"new", "replay"}
    stepper(method).step(third)
    assert [len(f.images) for f in forwards] == [10, 10, 10, 10, 12]
    assert torch.equal(method.memory.images, torch.cat([b.images for b in (first, second, third)]))


def test_rotated_copies_of_a_present_class_compete() -> None:
    method = learner("erace-rot", rotations=4, augmentation="none", float64=True)
    batch = only(batches(1)[0], 1)
    stepper(method).step(batch)
    network = deepcopy(method.network)
    terms = stepper(method).step(batch)
    samples = Labelled(method.normalise(batch.images), batch.labels).rotated(4)
    expected = slow_loss(network.logits(samples.images), samples.labels, {*range(4), *range(4, 16)})
    torch.testing.assert_close(terms["new"], expected.detach())


def test_the_head_and_the_list_of_classes_grow() -> None:
    method = learner("erace", num_classes=None)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(method).step(replace(batch, task=None))
    assert method.known.seen.tolist() == [True] * 4
    method.forget(1)
    assert method.known.seen.tolist() == [True, False, True, True]


def test_a_peer_knows_the_same_classes() -> None:
    method = learner("erace-ccldc", num_classes=6)
    for batch in (*batches(2), *batches(1, start=10)):
        stepper(method).step(batch)
    assert method.known.seen.tolist() == [True] * 4 + [False] * 2
    assert torch.equal(method.peer.known.seen, method.known.seen)


def test_the_recipe_of_the_port() -> None:
    settings: Any = settings_for("erace", "cifar100", "port")
    assert (settings.optimizer, settings.learning_rate, settings.weight_decay) == (
        "adamw",
        5e-4,
        1e-4,
    )
    assert (settings.head, settings.replay_batch) == ("linear", 64)
    assert (settings.augmentation, settings.unseen_compete) == ("crop", False)


def test_the_recipe_is_the_official_code() -> None:
    settings: Any = settings_for("erace", "cifar10", "original")
    assert (settings.optimizer, settings.learning_rate, settings.weight_decay) == ("sgd", 0.1, 0)
    assert (settings.head, settings.replay_batch) == ("cosine", 10)
    assert settings.unseen_compete
    assert settings.encoder == "resnet18-nf20"
    method = learner("erace", head="cosine")
    assert "bias" not in dict(method.network.classifier.named_parameters())


def test_masked_cross_entropy_ignores_rows_without_a_label_and_weights_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64)
    labels, competing = torch.tensor([0, 2, -1, 2, -1]), torch.tensor([True, False, True, True])
    plain = masked_cross_entropy(logits, labels, competing)
    counted = torch.tensor([0, 1, 3])
    expected = slow_loss(logits[counted], labels[counted], {0, 2, 3})
    torch.testing.assert_close(plain, expected)
    weight = torch.tensor([0.5, 9.0, 3.0, 9.0])
    each = [slow_loss(logits[[k]], labels[[k]], {0, 2, 3}) for k in counted.tolist()]
    weighted = masked_cross_entropy(logits, labels, competing, weight)
    torch.testing.assert_close(weighted, (0.5 * each[0] + 3 * each[1] + 3 * each[2]) / 3)
    assert masked_cross_entropy(logits[2:3], labels[2:3], competing) == 0


def test_known_classes_are_old_when_a_task_starts() -> None:
    known = KnownClasses(3, torch.device("cpu"))
    known.meet(torch.tensor([2, 2]))
    known.start_task()
    known.meet(torch.tensor([0]))
    assert known.current.tolist() == [True, False, False]
    known.grow(5)
    known.meet(torch.tensor([4]))
    assert known.seen.tolist() == [True, False, True, False, True]
    assert known.old.tolist() == [False, False, True, False, False]
    twin = KnownClasses(5, torch.device("cpu"))
    twin.load_state_dict(known.state_dict())
    known.forget(2)
    assert not known.seen[2]
    assert not known.old[2]
    assert twin.old[2]
    with pytest.raises(RuntimeError, match="size mismatch for seen"):
        KnownClasses(4, torch.device("cpu")).load_state_dict(known.state_dict())


def test_outputs_of_classes_and_of_labels() -> None:
    classes = torch.tensor([True, False, False])
    assert outputs_of(classes, 1).tolist() == [True, False, False]
    labels = torch.tensor([3, -1, 3])
    expected = [True, True, False, True, False, False]
    assert outputs_of(classes, 2, labels).tolist() == expected
