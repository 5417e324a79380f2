"""Relay: its loss, what the memory keeps, and what predictions see."""

from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.augment import rotations
from onpro.methods import recipes, settings_for
from onpro.streams import Batch
from tests.methods.averages import divergence, doubled
from tests.methods.learners import batches, learner, refused, stepper, watch

BARE: dict[str, Any] = {
    "teacher_rate": 0.01,
    "rotations": 1,
    "repeats": 1,
    "rivals": "all",
    "keeps": "reservoir",
    "predict_from": "image",
}
"""What is left without the parts that are added to MKD."""


def halved(images: Tensor, generator: torch.Generator) -> Tensor:
    """A view that needs no chance."""
    return images / 2


ONCE: dict[str, Any] = {"repeats": 1, "replay_batch": 200, "teacher_weight": 3.0}
"""One step a batch, which shows all that is stored."""


def shown(learned: Any, *given: Batch) -> tuple[Tensor, Tensor]:
    """All images of batches in four rotations, and their outputs."""
    images = learned.normalise(torch.cat([batch.images for batch in given]))
    labels = torch.cat([batch.labels for batch in given])
    return rotations(images, 4), torch.cat([4 * labels + turn for turn in range(4)])


def test_the_loss_is_that_of_the_view_and_what_the_average_makes_of_it() -> None:
    learned = doubled(learner("relay", float64=True, rivals="shown", **ONCE))
    learned.augmentation = halved
    first, second = batches(2)
    train = stepper(learned)
    assert train.step(first) == {}  # the first batch is only stored
    student, teacher = deepcopy(learned.network), deepcopy(learned.momentum_teacher.network)
    terms = train.step(second)
    images, outputs = shown(learned, second, first)
    of_image, of_view = student.logits(images), student.logits(images / 2)
    counts = Counter((outputs // 4).tolist())
    raised = torch.tensor([counts.get(c, 0) / 4 for c in range(4) for _ in range(4)]).double()
    raised = raised.clamp(min=1e-12).log()
    expected = cross_entropy(of_view + raised, outputs)
    torch.testing.assert_close(terms["ce"], expected, rtol=1e-6, atol=0)  # counts are float32
    taught = teacher.logits(images / 2)
    distilled = divergence(of_image, taught) + divergence(of_view, taught)
    torch.testing.assert_close(terms["taught"], 1.5 * distilled, rtol=1e-9, atol=0)


@pytest.mark.parametrize("rivals", ["task", "current", "all", "shown"])
@pytest.mark.parametrize("classes", [(2,), (0, 2)])
def test_classes_compete_as_they_are_asked_to(rivals: str, classes: tuple[int, ...]) -> None:
    """A step of the second task, whose classes are 2 and 3; its batch may have others."""
    learned = doubled(learner("relay", float64=True, rivals=rivals, **ONCE))
    learned.augmentation = halved
    train = stepper(learned)
    stored, new = [*batches(10), *batches(1, start=10)], batches(1, start=11)[0]
    for batch in stored:
        train.step(batch)
    labels = torch.cat([new.labels, stored[0].labels])
    chosen = torch.isin(labels, torch.tensor(classes))
    images = torch.cat([new.images, stored[0].images])
    new = replace(new, images=images[chosen], labels=labels[chosen], classes=classes)
    student = deepcopy(learned.network)
    terms = train.step(new)
    faces, outputs = zip(shown(learned, new), shown(learned, *stored), strict=True)
    logits = student.logits(torch.cat(faces) / 2)
    counted = torch.cat(outputs) if rivals == "shown" else outputs[1]
    counts = torch.tensor([(counted // 4 == output // 4).sum() for output in range(16)]).log()
    of_old = counts * (rivals in ("task", "shown"))
    allowed = {2, 3, *classes}
    masked = torch.tensor([0.0 if output // 4 in allowed else -1e9 for output in range(16)])
    of_new = masked if rivals in ("task", "current") else of_old
    offsets = [of_new] * len(outputs[0]) + [of_old] * len(outputs[1])
    expected = cross_entropy(logits + torch.stack(offsets), torch.cat(outputs))
    torch.testing.assert_close(terms["ce"], expected, rtol=1e-6, atol=0)


def test_each_rotation_of_a_class_is_contrasted_with_all_others() -> None:
    learned = doubled(learner("relay", float64=True, contrast_weight=0.5, **ONCE))
    learned.augmentation = halved
    first, second = batches(2)
    train = stepper(learned)
    train.step(first)
    student = deepcopy(learned.network)
    terms = train.step(second)
    images, outputs = shown(learned, second, first)
    z = torch.cat([student.embed(student.features(view)) for view in (images, images / 2)])
    similarity, labels = z @ z.T / 0.1, outputs.repeat(2).tolist()
    losses = []
    for i, row in enumerate(similarity):
        others = [k for k in range(len(labels)) if k != i]
        alike = [k for k in others if labels[k] == labels[i]]
        losses.append(torch.logsumexp(row[others], dim=0) - row[alike].mean())
    expected = 0.5 * torch.stack(losses).mean()
    torch.testing.assert_close(terms["contrast"], expected, rtol=1e-9, atol=0)


def test_a_batch_is_learned_several_times_and_stored_once() -> None:
    learned = learner("relay", repeats=3)
    passes = watch(learned)
    for batch in batches(2):
        stepper(learned).step(batch)
    assert len(passes) == 2 * 3  # of the second batch: the images and one view
    views = [forward.images for forward in passes[1::2]]
    assert not views[0].equal(views[1]), "each step has other views"
    assert passes[0].images.equal(passes[2].images), "of the same images"
    assert len(learned.memory) == 20


def test_without_its_parts_it_is_er_with_mkd() -> None:
    learned = [doubled(learner("relay", float64=True, **BARE))]
    learned.append(doubled(learner("er-mkd", float64=True, optimizer="adam", learning_rate=5e-4)))
    for one in learned:
        one.augmentation = one.harder = halved
        for batch in batches(12):
            stepper(one).step(batch)
    pairs = zip(learned[0].predictor.parameters(), learned[1].predictor.parameters(), strict=True)
    assert all(torch.allclose(*pair, rtol=1e-9, atol=1e-12) for pair in pairs)


@pytest.mark.parametrize("keeps", ["balanced", "reservoir"])
def test_the_memory_keeps_what_is_asked_for(keeps: str) -> None:
    learned = learner("relay", keeps=keeps, memory=20, rotations=1)
    for batch in batches(20):
        stepper(learned).step(batch)
    counts = Counter(learned.memory.labels.tolist())
    assert (sorted(counts.values()) == [5, 5, 5, 5]) == (keeps == "balanced")


@pytest.mark.parametrize("seen", ["all", "mirrored", "image"])
def test_predictions_see_what_is_asked_for(seen: str) -> None:
    learned = doubled(learner("relay", float64=True, predict_from=seen))
    learned.augmentation = halved
    for batch in batches(4):
        stepper(learned).step(batch)
    images = batches(1)[0].images
    faces = [images, images.flip(-1)] if seen != "image" else [images]
    turns = {0: 0, 1: 2, 2: 1, 3: 3} if seen == "all" else {0: 0}
    expected = []
    with learned.predictor.evaluating():
        network = learned.predictor
        for face in faces:
            for output, quarter_turns in turns.items():
                turned = learned.normalise(face.rot90(quarter_turns, (-2, -1)))
                logits = network.classifier(network.encoder(turned))
                expected.append(logits[:, output::4])
    mean = torch.stack(expected).mean(dim=0)
    torch.testing.assert_close(learned.scores(images), mean, rtol=1e-9, atol=1e-12)


def test_each_part_can_be_left_out_by_name() -> None:
    """New images compete with their task alone on CIFAR-10, where the memory is not balanced."""
    changed: dict[str, set[str]] = {}
    for data in ("cifar10", "cifar100"):
        usual = vars(settings_for("relay", data))
        for name in recipes("relay"):
            values = vars(settings_for("relay", data, name))
            if name == "many-stored":  # what differs between the data sets
                assert values == vars(settings_for("relay", "cifar100"))
                continue
            changed.setdefault(name, set()).update(k for k in usual if values[k] != usual[k])
    assert changed == {
        "without-rotations": {"rotations"},
        "without-teacher": {"teacher_weight", "predict_with"},
        "without-rivals": {"rivals"},
        "without-balance": {"keeps"},
        "without-views": {"predict_from"},
    }


@pytest.mark.parametrize(
    ("word", "changes"),
    [
        ("repeats", {"repeats": 0}),
        ("contrast weight", {"contrast_weight": -1.0}),
        ("rotations", {"rotations": 3}),
        ("teacher rate", {"teacher_rate": 1.0}),
        ("teacher weight", {"teacher_weight": -1.0}),
        ("rivals", {"rivals": "none"}),
    ],
)
def test_bad_settings_are_refused(word: str, changes: dict[str, Any]) -> None:
    refused("relay", word, **changes)
