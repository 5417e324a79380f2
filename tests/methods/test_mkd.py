"""MKD: the moving average, what it teaches, and the weights that predict."""

from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.errors import UserError
from onpro.losses import NO_CLASS
from onpro.methods import method, settings_for
from onpro.methods.parts.apf import unmixed
from tests.methods.averages import divergence, doubled
from tests.methods.learners import batches, found_in, learner, refused, stepper

PLAIN = {"augmentation": "none", "teacher_augmentation": "none"}


def test_the_loss_is_the_one_of_the_paper() -> None:
    learned = doubled(
        learner("er-mkd", float64=True, replay_batch=200, teacher_weight=3.0, **PLAIN)
    )
    first, second = batches(2)
    train = stepper(learned)
    assert train.step(first) == {}  # the first batch is only stored
    student, teacher = deepcopy(learned.network), deepcopy(learned.momentum_teacher.network)
    terms = train.step(second)
    images = torch.cat([first.images, second.images])  # the replay batch in any order
    labels = torch.cat([first.labels, second.labels])
    images = learned.normalise(images)
    logits, taught = student.logits(images), teacher.logits(images)
    assert torch.allclose(terms["taught_ce"], cross_entropy(logits, labels), rtol=1e-9)
    # Without augmentation both views are the images as they are.
    expected = 3.0 * divergence(logits, taught)
    assert torch.allclose(terms["taught_kl"], expected, rtol=1e-9)


def test_the_average_starts_small_and_follows() -> None:
    learned = learner("er-mkd", teacher_rate=0.2)
    before = [weight.detach().clone() for weight in learned.network.parameters()]
    for weight, averaged in zip(before, learned.momentum_teacher.network.parameters(), strict=True):
        assert torch.allclose(averaged, 0.25 * weight)
    expected = [0.25 * weight for weight in before]
    train = stepper(learned)
    for batch in batches(4):
        stored = len(learned.memory)
        train.step(batch)
        if stored:
            now = learned.network.parameters()
            expected = [0.8 * old + 0.2 * new for old, new in zip(expected, now, strict=True)]
    for weight, averaged in zip(
        expected, learned.momentum_teacher.network.parameters(), strict=True
    ):
        assert torch.allclose(averaged, weight, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weights", ["mean", "student", "teacher"])
def test_predictions_use_the_weights_asked_for(weights: str) -> None:
    learned = learner("er-mkd", predict_with=weights, teacher_rate=0.3)
    train = stepper(learned)
    for batch in batches(5):
        train.step(batch)
        learned.scores(batch.images)
    mine, theirs = learned.network, learned.momentum_teacher.network
    expected = deepcopy(theirs if weights == "teacher" else mine)
    if weights == "mean":
        pairs = zip(expected.parameters(), theirs.parameters(), strict=True)
        with torch.no_grad():
            for weight, averaged in pairs:
                weight.copy_((weight + averaged) / 2)
    images = batches(1)[0].images
    with expected.evaluating():
        scores = expected(learned.normalise(images))
    assert torch.allclose(learned.scores(images), scores, rtol=1e-4, atol=1e-5)


def test_the_mean_is_computed_once_between_two_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    learned = learner("er-mkd-mirror")
    train = stepper(learned)
    lerp, means = torch._foreach_lerp_, 0

    def counted(*arguments: Any) -> Any:
        nonlocal means
        means += 1
        return lerp(*arguments)

    for batch in batches(2):
        train.step(batch)
        with monkeypatch.context() as patched:
            patched.setattr(torch, "_foreach_lerp_", counted)
            first = learned.scores(batch.images)
            assert learned.scores(batch.images).equal(first)
    assert means == 2
    learned.load_state_dict(learner("er-mkd-mirror", seed=3).state_dict())
    assert not learned.scores(batch.images).equal(first)


def test_the_average_gets_no_gradient() -> None:
    learned = learner("er-mkd")
    train = stepper(learned)
    for batch in batches(3):
        train.step(batch)
    networks = learned.momentum_teacher.network, learned.mean.network
    assert all(weight.grad is None for network in networks for weight in network.parameters())


@pytest.mark.parametrize("base", ["er", "onpro"])
def test_a_loss_of_its_own_stays(base: str) -> None:
    changes: dict[str, Any] = {} if base == "er" else {"projection": 16, "rotations": 4}
    learned = learner(f"{base}-mkd", **changes)
    train = stepper(learned)
    terms: dict[str, Tensor] = {}
    for batch in batches(12):
        terms = train.step(batch)
    assert {"taught_ce", "taught_kl"} <= terms.keys()
    assert ("ins_new" in terms) == (base == "onpro")
    assert ("replay" in terms) is False


@pytest.mark.parametrize("base", ["derpp", "gsa", "hpcr", "mose"])
def test_new_images_and_a_replay_batch_are_taught(base: str) -> None:
    changes: dict[str, Any] = {"projection": 16} if base == "mose" else {}
    learned = learner(f"{base}-mkd", learning_rate=5e-3, replay_batch=7, **changes)
    shown: list[Any] = []
    learned.shown = lambda *samples: shown.append(type(learned).shown(learned, *samples))
    train = stepper(learned)
    first, second = batches(1)[0], batches(1, start=10)[0]
    train.step(first)
    train.step(second)
    images = shown[-1].images
    assert len(images) == 17  # the batch, and 7 of the images stored before
    assert torch.equal(images[:10], learned.normalise(second.images))
    assert found_in(images[10:], learned.normalise(first.images)).all()


@pytest.mark.parametrize("prediction", ["last", "mixture"])
@pytest.mark.parametrize("classifier", ["nearest-mean", "linear"])
def test_experts_predict_with_the_mean_weights(prediction: str, classifier: str) -> None:
    changes: dict[str, Any] = {"prediction": prediction, "classifier": classifier}
    learned = learner("mose-mkd", learning_rate=5e-3, projection=16, **changes)
    train = stepper(learned)
    for batch in batches(3):
        train.step(batch)
    images = batches(1)[0].images
    before = learned.scores(images)
    student = deepcopy(learned.network.state_dict())
    mean = learned.predictor.state_dict()
    learned.network.load_state_dict(mean)
    learned.momentum_teacher.network.load_state_dict(mean)
    learned.nearest_mean.moment = None
    learned.mean.moment = None
    assert torch.allclose(learned.scores(images), before, rtol=1e-4, atol=1e-5)
    learned.network.load_state_dict(student)
    learned.momentum_teacher.network.load_state_dict(student)
    learned.nearest_mean.moment = None
    learned.mean.moment = None
    assert not torch.allclose(learned.scores(images), before, rtol=1e-4, atol=1e-5)


def test_the_teacher_of_experts_grows_and_forgets_in_every_classifier() -> None:
    learned = learner("mose-mkd", num_classes=None, projection=16, teacher_rate=0.2)
    train = stepper(learned)
    for batch in batches(2):
        train.step(replace(batch, task=None))
    learned.grow(4)
    learned.forget(1)
    heads = learned.momentum_teacher.network.classifiers()
    for head, own in zip(heads, learned.network.classifiers(), strict=True):
        assert head.out_features == 4
        assert torch.equal(head.weight[1:], 0.25 * own.weight[1:])


def test_the_settings_of_the_paper_are_those_of_er() -> None:
    settings: Any = settings_for("er-mkd", "cifar100")
    assert (settings.optimizer, settings.learning_rate) == ("adam", 5e-4)
    assert settings_for("er", "cifar100").optimizer == "sgd"  # type: ignore[attr-defined] # ER has it


@pytest.mark.parametrize("base", ["agem", "dvc", "gdumb", "mir", "scr"])
def test_methods_without_one_loss_are_refused(base: str) -> None:
    with pytest.raises(UserError, match=f"mkd cannot wrap {base}, .*take aser, derpp, er,"):
        method(f"{base}-mkd")


def test_rotations_go_inside() -> None:
    assert method("er-rot-mkd")
    with pytest.raises(UserError, match=r"rot cannot wrap er-mkd, .*wrap the method in rot first"):
        method("er-mkd-rot")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"teacher_rate": 0.0}, "teacher rate"),
        ({"teacher_rate": 1.0}, "teacher rate"),
        ({"teacher_weight": -1.0}, "teacher weight"),
        ({"teacher_augmentation": "blur"}, "blur"),
    ],
)
def test_bad_values_are_refused(changes: dict[str, Any], word: str) -> None:
    refused("er-mkd", word, **changes)


@pytest.mark.parametrize("rivals", ["all", "task", "none"])
def test_new_images_compete_with_the_classes_asked_for(rivals: str) -> None:
    learned = learner("er-mkd", taught_rivals=rivals)
    train = stepper(learned)
    for batch in batches(11):  # into the second task, whose classes are 2 and 3
        train.step(batch)
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([2, 3, 0, 1, 2])  # two new images, three replayed ones
    shown = unmixed(torch.zeros(5, 3, 8, 8), labels)
    loss = learned.label_loss(logits, shown, 2, rivals)
    of_new = {
        "all": cross_entropy(logits[:2], labels[:2], reduction="none"),
        "task": cross_entropy(logits[:2, 2:], labels[:2] - 2, reduction="none"),
        "none": torch.zeros(0),
    }[rivals]
    of_old = cross_entropy(logits[2:], labels[2:], reduction="none")
    assert torch.allclose(loss, torch.cat([of_new, of_old]).mean())


@pytest.mark.parametrize("rivals", ["all", "task"])
def test_an_image_without_a_label_does_not_count(rivals: str) -> None:
    """One that stands in for another among ASER's replayed images."""
    learned = learner("aser-mkd", taught_rivals=rivals)
    learned.met.meet(torch.arange(4))
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([2, 3, 0, 1, NO_CLASS])
    loss = learned.label_loss(logits, unmixed(torch.zeros(5, 3, 8, 8), labels), 2, rivals)
    assert torch.allclose(loss, cross_entropy(logits[:4], labels[:4]))


@pytest.mark.parametrize("name", ["derpp-mkd", "pcr-chain", "derpp-mkd-ccldc"])
def test_the_classes_of_a_batch_that_is_only_stored_are_met(name: str) -> None:
    learned = learner(name)
    stepper(learned).step(batches(1)[0])
    for each in learned.learners:
        if hasattr(each, "met"):
            assert each.met.seen.tolist() == [True, True, False, False]


def test_where_only_new_images_are_shown_they_compete_with_all() -> None:
    learned = learner("onpro-mkd", taught_rivals="none", projection=16, rotations=4)
    terms = stepper(learned).step(batches(1)[0])
    assert terms["taught_ce"] > 0


@pytest.mark.parametrize("base", ["derpp", "er", "onpro"])
def test_a_short_stream_has_a_faster_average(base: str) -> None:
    short: Any = settings_for(f"{base}-mkd", "digits")
    long: Any = settings_for(f"{base}-mkd", "cifar100")
    assert (short.teacher_rate, short.teacher_weight, short.learning_rate) == (0.1, 2.0, 5e-3)
    assert (long.teacher_rate, long.teacher_weight) == (0.01, 5.5)
    assert long.learning_rate < 1e-3


def test_classes_compete_as_much_as_they_are_shown() -> None:
    """Cross-entropy of logits that are raised by the logarithm of the expected number of images."""
    learned = doubled(
        learner("er-mkd", float64=True, replay_batch=4, taught_rivals="shown", **PLAIN)
    )
    train = stepper(learned)
    first, second = batches(2)
    train.step(first)
    student = deepcopy(learned.network)
    stored = learned.memory.labels.bincount(minlength=4)
    new = second.labels.bincount(minlength=4)
    old = learned.sample_replay(4)
    with patch.object(learned, "sample_replay", lambda count: old):
        terms = train.step(second)
    images = torch.cat([learned.normalise(second.images), old.images])
    labels = torch.cat([second.labels, old.labels])
    shown = new + 4 * stored / stored.sum()
    logits = student.logits(images) + shown.clamp(min=1e-12).log()
    assert torch.allclose(terms["taught_ce"], cross_entropy(logits, labels), rtol=1e-6)


@pytest.mark.parametrize("rivals", ["all", "task", "shown"])
def test_rotations_are_taught_as_classes(rivals: str) -> None:
    """A step of the second task, against a slow reference of the loss on all rotations."""
    changes: dict[str, Any] = {"taught_rotations": 4, "taught_rivals": rivals, **PLAIN}
    learned = doubled(learner("er-mkd", float64=True, replay_batch=200, **changes))
    train = stepper(learned)
    first, second = batches(1)[0], batches(1, start=10)[0]
    train.step(first)
    student, teacher = deepcopy(learned.network), deepcopy(learned.momentum_teacher.network)
    terms = train.step(second)
    images = learned.normalise(torch.cat([second.images, first.images]))
    labels = torch.cat([second.labels, first.labels])
    turned = torch.cat([images.rot90(turn, (2, 3)) for turn in (0, 2, 1, 3)])
    outputs = torch.cat([4 * labels + turn for turn in range(4)])
    logits, taught = student.logits(turned), teacher.logits(turned)
    assert logits.shape[1] == 4 * 4
    expected = learned.settings.teacher_weight * divergence(logits, taught)
    assert torch.allclose(terms["taught_kl"], expected, rtol=1e-9)
    shown = torch.bincount(labels, minlength=4).double().clamp(min=1e-12).log()
    rows = []
    for row, output in zip(logits, outputs, strict=True):
        raised = torch.zeros_like(row)
        if rivals == "shown":
            raised += shown.repeat_interleave(4)
        if rivals == "task" and output // 4 in second.labels:
            raised -= 1e9
            raised[[4 * label + turn for label in second.labels for turn in range(4)]] = 0
        rows.append(cross_entropy(row + raised, output))
    assert torch.allclose(terms["taught_ce"], torch.stack(rows).mean(), rtol=1e-6)


@pytest.mark.parametrize("base", ["onpro", "ocm"])
def test_a_methods_own_loss_and_its_predictions_do_without_taught_rotations(base: str) -> None:
    changes: dict[str, Any] = {"projection": 16, "rotations": 4, "predict_with": "student", **PLAIN}
    plain, turned = (
        doubled(learner(f"{base}-mkd", float64=True, taught_rotations=blocks, **changes))
        for blocks in (1, 4)
    )
    weights = plain.network.state_dict()
    for name in ("classifier.weight", "classifier.bias"):
        weights[name] = weights[name].repeat_interleave(4, dim=0)
    turned.network.load_state_dict(weights)
    steppers = stepper(plain), stepper(turned)
    for learned in (plain, turned):
        learned.added_terms = lambda *_: {}
    for batch in batches(14):
        own, same = (train.step(batch) for train in steppers)
        assert all(torch.allclose(own[name], same[name], rtol=1e-6) for name in own)
    images = batches(1)[0].images
    assert torch.allclose(plain.scores(images), turned.scores(images), rtol=1e-5)


@pytest.mark.parametrize("name", ["er-mkd", "er-mkd-mirror"])
def test_all_rotations_that_are_taught_can_predict(name: str) -> None:
    changes: dict[str, Any] = {"taught_rotations": 4, "predict_from": "rotations", **PLAIN}
    learned = doubled(learner(name, float64=True, **changes))
    for batch in batches(4):
        stepper(learned).step(batch)
    images = batches(1)[0].images
    faces = [images] if name == "er-mkd" else [images, images.flip(-1)]
    with learned.predictor.evaluating():
        expected = [
            learned.predictor.outputs(learned.normalise(face.rot90(quarters, (2, 3))))[:, output::4]
            for face in faces
            for output, quarters in enumerate((0, 2, 1, 3))
        ]
    mean = torch.stack(expected).mean(dim=0)
    torch.testing.assert_close(learned.scores(images), mean, rtol=1e-9, atol=1e-12)


def test_predictions_from_rotations_are_refused_where_there_are_none_or_others_predict() -> None:
    refused("er-mkd", "taught rotations", predict_from="rotations")
    refused("er-mirror-mkd", "er-mkd-mirror", predict_from="rotations", taught_rotations=4)


def test_rotations_are_refused_where_they_cannot_be_taught() -> None:
    refused("erace-mkd", "rotations", taught_rotations=4)
    refused("er-rot-mkd", "rotations", taught_rotations=4)
