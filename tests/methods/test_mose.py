"""MOSE: experts after every stage, a new and a balanced set, four terms for each expert."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from onpro.errors import UserError
from onpro.methods import settings_for
from onpro.methods.base import Labelled, Terms
from onpro.methods.mose import MOSE, masked_contrast
from onpro.nn import ENCODERS, Encoder, EncoderKind
from tests.methods.learners import DATA, batches, found_in, learner, refused, stepper, watch

SMALL: dict[str, Any] = {"projection": 16, "replay_batch": 12, "new_replay": 5}


class Noted(MOSE):
    """MOSE that notes the sets of each step, and the network before it."""

    def terms(self, new: Labelled, balanced: Labelled) -> Terms:
        self.sets = new, balanced
        self.before = deepcopy(self.network)
        return super().terms(new, balanced)


def noted(**changes: Any) -> Any:
    method = learner("mose", float64=True, augmentation="none", **SMALL, **changes)
    method.__class__ = Noted
    return method


def counted(samples: Labelled) -> list[int]:
    return [label for label in samples.labels.tolist() if label >= 0]


def slow_contrast(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    losses = []
    for i in range(len(labels)):
        others = torch.arange(len(labels)) != i
        similarity = z[others] @ z[i] / temperature
        positive = similarity[labels[others] == labels[i]]
        losses.append(similarity.logsumexp(0) - positive.mean())
    return torch.stack(losses).mean()


def slow_terms(method: Any, current: list[int]) -> dict[str, Tensor]:
    """The terms of the last step, from rows that count alone; `current`: classes of the task."""
    network, (new, balanced) = method.before, method.sets
    images, labels, is_new = [], [], []
    for samples in (new, balanced):
        both = torch.cat([samples.images, samples.images.flip(3)])
        images.append(torch.cat([both, both]))
        labels.append(samples.labels.repeat(4))
        is_new += [samples is new] * len(labels[-1])
    y, of_new = torch.cat(labels), torch.tensor(is_new)
    features = network.experts(network.features(torch.cat(images)))
    rows = y >= 0
    terms = dict.fromkeys(("contrast", "new", "distillation", "balanced"), torch.zeros(()).double())
    heads = [*network.heads, network.classifier]
    adapted = normalize(network.adaptation(features[-1]))[rows]
    for k, (h, head, projector) in enumerate(zip(features, heads, network.projectors, strict=True)):
        z = normalize(projector(h))[rows]
        terms["contrast"] = terms["contrast"] + slow_contrast(z, y[rows], 0.07)
        some, column = rows & of_new, {label: i for i, label in enumerate(current)}
        place = torch.tensor([column[label] for label in y[some].tolist()])
        terms["new"] = terms["new"] + cross_entropy(head(h)[some][:, current], place)
        if k < len(heads) - 1:
            gap = adapted - normalize(h)[rows]
            terms["distillation"] = terms["distillation"] + gap.square().sum().sqrt()
        if len(balanced.labels):
            some = rows & ~of_new
            loss = cross_entropy(head(h)[some], y[some])
            terms["balanced"] = terms["balanced"] + 2 * loss
    return {name: term.detach() for name, term in terms.items() if term}


def test_the_terms_are_those_of_a_slow_reference() -> None:
    method = noted(num_classes=6)
    stream = [*batches(3, size=4), *batches(2, start=25, size=4)]
    assert stepper(method).step(stream[0]) == {}  # only stored
    for step, batch in enumerate(stream[1:], start=1):
        terms = stepper(method).step(batch)
        expected = slow_terms(method, list(range(6)) if step < 3 else [2, 3])
        assert terms.keys() == expected.keys()
        assert ("balanced" in terms) == (step >= 3)
        for name, term in terms.items():
            torch.testing.assert_close(term, expected[name], msg=f"{name} of step {step}")


def test_only_the_last_expert_learns_from_the_others() -> None:
    method = noted()
    for batch in batches(2):
        stepper(method).step(batch)
    distance = method.terms(*method.sets)["distillation"]
    encoder, adaptation = method.network.encoder, method.network.adaptation
    branches = [*encoder.gates.parameters(), *encoder.branches.parameters()]
    *of_branches, of_last = torch.autograd.grad(distance, [*branches, adaptation.weight])
    assert not any(gradient.any() for gradient in of_branches)
    assert of_last.any()


def test_the_sets_hold_what_they_should() -> None:
    method = noted()
    stream = [*batches(3), *batches(3, start=10)]
    for batch in stream[:3]:
        stepper(method).step(batch)
    new, balanced = method.sets
    assert len(counted(new)) == 22  # the batch and 12 stored images
    assert not len(balanced.labels)
    stepper(method).step(stream[3])
    new, balanced = method.sets
    assert counted(new) == new.labels.tolist() == stream[3].labels.tolist()
    assert counted(balanced)[:6] == stream[3].labels[:6].tolist()  # half of the classes are new
    assert sorted(set(counted(balanced)[6:])) == [0, 1]
    assert len(counted(balanced)) == 12
    stepper(method).step(stream[4])
    new, balanced = method.sets
    assert len(counted(new)) == 15  # the batch and 5 stored images of the task
    assert set(counted(new)) == {2, 3}
    assert found_in(new.images[10:], method.normalise(stream[3].images)).all()


def test_few_classes_limit_the_balanced_set() -> None:
    method = noted(replay_per_class=1)
    for batch in (*batches(2), *batches(1, start=10)):
        stepper(method).step(batch)
    assert len(counted(method.sets[1])) == 6 + 4  # 4 classes have been seen


def test_one_forward_of_four_views_of_both_sets() -> None:
    method = learner("mose", **SMALL)
    forwards = watch(method)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(method).step(batch)
    assert [len(f.images) for f in forwards] == [4 * 20, 4 * (10 + 12), 4 * (15 + 12)]
    images = forwards[0].images
    assert torch.equal(images[20:40], images[:20].flip(3))
    assert not torch.equal(images[40:], images[:40])


def test_rows_without_a_label_do_not_count_in_the_contrast() -> None:
    z = normalize(torch.randn(7, 4, generator=torch.Generator().manual_seed(0)).double())
    labels = torch.tensor([0, 1, -1, 0, 1, -1, 1])
    z.requires_grad_()
    loss = masked_contrast(z, labels, 0.1)
    rows = labels >= 0
    torch.testing.assert_close(loss, slow_contrast(z[rows], labels[rows], 0.1))
    loss.backward()
    assert z.grad is not None
    assert not z.grad[~rows].any()
    assert z.grad[rows].all()


@pytest.mark.parametrize("prediction", ["last", "mixture"])
def test_the_nearest_mean_of_the_last_expert_or_of_all(prediction: str) -> None:
    method = learner("mose", **SMALL, prediction=prediction, num_classes=6)
    for batch in (*batches(4), *batches(4, start=10)):
        stepper(method).step(batch)
    network = deepcopy(method.network).eval()
    stored = network.experts(network.encoder(method.normalise(method.memory.images)))
    asked = network.experts(network.encoder(method.normalise(DATA.test.images)))
    distances: list[list[Tensor]] = []
    for memory, test in zip(stored, asked, strict=True):
        distances.append([])
        for k in range(4):
            mean = normalize(normalize(memory[method.memory.labels == k]).mean(0), dim=0)
            distances[-1].append((normalize(test) - mean).square().sum(dim=1))
    slow = torch.stack([torch.stack(of_expert, dim=1) for of_expert in distances])
    expected = slow[-1] if prediction == "last" else slow.mean(dim=0)
    scores = method.scores(DATA.test.images)
    torch.testing.assert_close(-scores[:, :4], expected.detach(), rtol=1e-4, atol=1e-5)
    assert (scores[:, 4:] == -torch.inf).all()


@pytest.mark.parametrize("prediction", ["last", "mixture"])
def test_the_head_of_the_last_expert_or_the_mean_of_all(prediction: str) -> None:
    changes: dict[str, Any] = {"augmentation": "none", "classifier": "linear"} | SMALL
    method = learner("mose", float64=True, prediction=prediction, **changes)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(method).step(batch)
    network = deepcopy(method.network).eval()
    features = network.experts(network.encoder(method.normalise(DATA.test.images)))
    heads = [*network.heads, network.classifier]
    logits = torch.stack([head(h) for head, h in zip(heads, features, strict=True)])
    expected = logits[-1] if prediction == "last" else logits.mean(dim=0)
    torch.testing.assert_close(method.scores(DATA.test.images), expected.detach())


def test_every_classifier_grows_and_forgets() -> None:
    method = learner("mose", num_classes=None, **SMALL)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(method).step(replace(batch, task=None))
    heads = [*method.network.classifiers()]
    assert [head.out_features for head in heads] == [4, 4, 4]
    before = [head.weight.detach().clone() for head in heads]
    method.forget(1)
    for head, weight in zip(heads, before, strict=True):
        changed = (head.weight != weight).any(dim=1)
        assert changed.tolist() == [False, True, False, False]


def test_a_teacher_forgets_in_every_classifier() -> None:
    method = learner("mose-kd", num_classes=None, **SMALL)
    for batch in (*batches(2), *batches(2, start=10)):
        stepper(method).step(replace(batch, task=None))
    method.forget(1)
    assert method.teacher.in_use
    for head in method.teacher.network.classifiers():
        assert head.out_features == 2  # it knows the first task
        assert head.weight[0].any()
        assert not head.weight[1].any()


def test_a_batch_of_old_classes_still_competes() -> None:
    """Without clean tasks, a batch has images of classes that are not of the current task."""
    method = learner("mose", **SMALL)
    first, second = batches(1)[0], batches(1, start=10)[0]
    for batch in (first, second):
        stepper(method).step(replace(batch, task=None))
    terms = stepper(method).step(replace(first, task=None))
    assert 0 < float(terms["new"]) < 100


def test_an_encoder_without_stages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(Encoder):
        out_features = 8

    monkeypatch.setitem(ENCODERS, "flat", EncoderKind(lambda _: Flat(), minimum_side=1))
    with pytest.raises(UserError, match="'flat' has no stages"):
        learner("mose", encoder="flat")


def test_the_recipes_are_the_official_code() -> None:
    settings: Any = settings_for("mose", "cifar10", "original")
    assert settings == settings_for("mose", "cifar10")
    optimizer = settings.make_optimizer([torch.zeros(1, requires_grad=True)])
    assert optimizer.defaults["betas"] == (0.9, 0.999)
    mixture: Any = settings_for("mose", "cifar10", "mixture")
    assert mixture.prediction == "mixture"


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"temperature": 0.0}, "temperature"),
        ({"projection": 0}, "projection"),
        ({"new_replay": -1}, "new replay"),
        ({"replay_per_class": 0}, "replay per class"),
        ({"balanced_weight": -1.0}, "balanced weight"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("mose", word, **changes)
