"""OnPro on a tiny stream: what goes through the network, and what every setting changes."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from onpro import losses
from onpro.augment import Normalise, rotations
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context, Labelled, Terms, recipes, settings_for
from onpro.methods.base import total
from onpro.methods.onpro import OnPro, OnProSettings
from onpro.methods.parts import apf
from onpro.methods.parts.apf import Mixture
from onpro.methods.parts.contrast import slice_start
from onpro.nn.optimizers import Adam
from onpro.streams import Batch, ClassIncremental
from tests.methods.learners import in_float64, stepper

CLASSES, TASKS = 10, 5
DATA = tiny(classes=CLASSES, train_per_class=40, test_per_class=1, image_size=8)
SMALL: dict[str, Any] = {"encoder": "slim", "projection": 32}


def by_task() -> list[list[Batch]]:
    """The stream's batches, task by task: five tasks of two classes, eight batches of ten."""
    batches: list[list[Batch]] = [[] for _ in range(TASKS)]
    for batch in ClassIncremental(DATA, TASKS):
        assert batch.task is not None
        batches[batch.task].append(batch)
    return batches


STREAM = by_task()
FIRST, SECOND = STREAM[0], STREAM[1]


class Watched(OnPro):
    """OnPro that notes what goes through its encoder in training and which loss it descends."""

    def __init__(self, settings: OnProSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.forwards: list[Tensor] = []
        self.with_gradient: list[bool] = []
        self.descended: list[float] = []
        self.network.encoder.register_forward_pre_hook(self._note)

    def _note(self, _: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        if not self.network.training:
            return
        self.forwards.append(inputs[0].detach())
        self.with_gradient.append(torch.is_grad_enabled())

    @property
    def sizes(self) -> list[int]:
        """Sizes of the forwards since the last time of asking."""
        sizes = [len(images) for images in self.forwards]
        self.forwards.clear()
        return sizes

    def minimise(self, terms: Terms) -> None:
        self.descended.append(total(terms).item())
        super().minimise(terms)


def learner(num_classes: int | None = CLASSES, memory: int = 100, **changes: Any) -> Watched:
    context = Context(
        DATA.image_shape, Normalise(DATA.mean, DATA.std), num_classes=num_classes, memory=memory
    )
    return Watched(OnProSettings(**SMALL | changes), context)


def through_first_task(**changes: Any) -> Watched:
    """A learner that has finished the first task's eight steps."""
    method = learner(**changes)
    for batch in FIRST:
        stepper(method).step(batch)
    method.forwards.clear()
    method.with_gradient.clear()
    return method


# What goes through the network


def test_images_per_step_with_16_rotations() -> None:
    method = learner()
    per_step: list[list[int]] = []
    for task in range(TASKS):
        images = []
        for batch in STREAM[task] if task == 0 else STREAM[task][:2]:
            before = method.progress.images
            stepper(method).step(batch)
            images.append(method.progress.images - before)
            assert sum(method.sizes) == images[-1]
        per_step.append(images)
    assert per_step[0] == [330, 350, 370, 390, 410, 430, 450, 458]
    assert per_step[1:] == [[320 + 35 * b] * 2 for b in (28, 42, 56, 64)]


@pytest.mark.parametrize(("blocks", "later"), [(1, 2 * 10 + 5 * 28), (4, 8 * 10 + 11 * 28)])
def test_images_per_step_with_fewer_rotations(blocks: int, later: int) -> None:
    method = learner(rotations=blocks)
    stepper(method).step(FIRST[0])
    assert method.progress.images == 2 * blocks * 10 + 10
    for batch in FIRST[1:]:
        stepper(method).step(batch)
    before = method.progress.images
    stepper(method).step(SECOND[0])
    assert method.progress.images - before == later


def test_first_task_forwards_rotated_then_prototypes_then_cross_entropy() -> None:
    method = learner(augmentation="none")
    stepper(method).step(FIRST[0])
    assert method.sizes == [320, 10]
    stepper(method).step(FIRST[1])
    rotated, prototypes, classified = method.forwards
    new = method.normalise(FIRST[1].images)
    expected = rotations(new, 16)
    assert torch.equal(rotated, torch.cat([expected, expected]))
    assert torch.equal(classified, new)
    assert torch.equal(prototypes[:10], prototypes[10:])
    assert same_images(prototypes[:10], method.normalise(FIRST[0].images))


def test_later_tasks_forward_rotated_then_cross_entropy_then_prototypes() -> None:
    method = through_first_task(augmentation="none")
    stepper(method).step(SECOND[0])
    rotated, classified, prototypes = method.forwards
    new = rotations(method.normalise(SECOND[0].images), 16)
    replay = rotations(classified, 16)
    assert torch.equal(rotated, torch.cat([new, new, replay, replay]))
    assert torch.equal(prototypes, torch.cat([classified, classified]))  # nothing mixed yet
    assert all(method.with_gradient)


def test_prototypes_come_from_unmixed_replay() -> None:
    method = through_first_task(augmentation="none", mixup_probability=1.0)
    stepper(method).step(SECOND[0])
    stored = method.normalise(method.memory.images)
    method.forwards.clear()
    stepper(method).step(SECOND[1])
    _, classified, prototypes = method.forwards
    assert among(prototypes, stored).all()
    assert among(classified, stored).float().mean() < 0.5


def test_each_forward_is_augmented_afresh() -> None:
    method = through_first_task()
    stepper(method).step(SECOND[0])
    rotated, classified, prototypes = method.forwards
    new = rotations(method.normalise(SECOND[0].images), 16)
    assert torch.equal(rotated[:160], new)
    assert not torch.equal(rotated[160:320], new)
    raw = prototypes[:28]
    assert torch.equal(rotated[320 : 320 + 28], raw)
    assert not torch.equal(prototypes[28:], raw)
    assert not torch.equal(classified, raw)
    assert not torch.equal(classified, prototypes[28:])


def test_augmented_views_are_the_papers_reading() -> None:
    method = through_first_task(views="augmented")
    stepper(method).step(SECOND[0])
    rotated, _, prototypes = method.forwards
    new = rotations(method.normalise(SECOND[0].images), 16)
    assert not torch.equal(rotated[:160], new)
    assert not torch.equal(rotated[:160], rotated[160:320])
    assert not among(prototypes, method.normalise(method.memory.images)).all()


def test_memory_keeps_raw_images_after_the_step() -> None:
    method = learner()
    stepper(method).step(FIRST[0])
    assert torch.equal(method.memory.images, FIRST[0].images)
    assert torch.equal(method.memory.labels, FIRST[0].labels)


def among(images: Tensor, others: Tensor) -> Tensor:
    """Which of the images are equal to one of the others."""
    return (images[:, None] == others[None]).flatten(2).all(dim=2).any(dim=1)


def same_images(a: Tensor, b: Tensor) -> bool:
    return len(a) == len(b) and bool(among(a, b).all()) and bool(among(b, a).all())


# The replay batch


@pytest.mark.parametrize(
    ("seen", "changes", "size"),
    [
        (1, {}, 7),
        (4, {}, 28),
        (6, {}, 42),
        (8, {}, 56),
        (10, {}, 64),
        (100, {}, 64),
        (4, {"replay_per_class": 0}, 64),
        (4, {"replay_per_class": 3}, 12),
        (4, {"replay_batch": 10}, 10),
    ],
)
def test_replay_size(seen: int, changes: dict[str, Any], size: int) -> None:
    assert OnProSettings(**SMALL | changes).replay_size(seen) == size


@pytest.mark.parametrize(
    ("share", "size", "base"),
    [
        *[(0.25, b, base) for b, base in [(28, 21), (42, 31), (56, 42), (64, 48)]],
        *[(0.10, b, base) for b, base in [(28, 25), (42, 37), (56, 50), (64, 57)]],
        (0.0, 64, 64),
        (1.0, 64, 0),
    ],
)
def test_parts_of_the_replay_batch(
    share: float, size: int, base: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = through_first_task(feedback=share)
    method.progress.task, method.progress.steps_in_task = 1, 1
    parts: dict[str, int] = {}

    def randomly(images: Tensor, labels: Tensor, **_: Any) -> Mixture:
        parts["base"] = len(labels)
        return apf.unmixed(images, labels)

    def confused(memory: Any, normalise: Any, prototypes: Any, count: int, **_: Any) -> Mixture:
        parts["feedback"] = count
        return apf.unmixed(torch.ones(count, 3, 8, 8), torch.zeros(count, dtype=torch.long))

    monkeypatch.setattr(apf, "mix_randomly", randomly)
    monkeypatch.setattr(apf, "mix_confused", confused)
    images = torch.arange(size).float()[:, None, None, None].expand(-1, 3, 8, 8)
    mixture = method.mixed_replay(Labelled(images, torch.arange(size)))
    assert parts.get("base") == base
    assert parts.get("feedback", 0) == size - base
    assert len(mixture.first) == size
    of_base = mixture.images[:base, 0, 0, 0]
    assert len(set(of_base.tolist())) == base  # without replacement, out of the batch
    assert torch.equal(of_base, mixture.first[:base].float())


@pytest.mark.parametrize("task", [1, 2])
def test_the_first_step_of_a_task_mixes_nothing(task: int) -> None:
    method = through_first_task(mixup_probability=1.0)
    mixtures: list[Mixture] = []
    original = method.classified

    def noting(new: Labelled, mixed: Mixture) -> Mixture:
        mixtures.append(mixed)
        return original(new, mixed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "classified", noting)
        for batch in [b for batches in STREAM[1 : task + 1] for b in batches[:2]]:
            stepper(method).step(batch)
    first, second = mixtures[-2:]
    assert not first.weight.any()
    assert torch.equal(first.first, first.second)
    assert second.weight.any()


def test_mixup_off_never_mixes() -> None:
    method = through_first_task(mixup=False, augmentation="none")
    for batch in SECOND[:3]:
        stored = method.normalise(method.memory.images)
        stepper(method).step(batch)
        assert among(method.forwards[-2], stored).all()


def test_share_of_feedback_follows_the_prototypes() -> None:
    """With nothing but feedback, and prototypes of two classes, only these two are replayed."""
    method = through_first_task(feedback=1.0, mixup_probability=0.0)
    method.progress.task, method.progress.steps_in_task = 1, 1
    old = method.sample_replay(20)
    method.prototypes = torch.zeros_like(method.prototypes)
    method.prototypes[:2] = torch.rand(2, 32, generator=torch.Generator().manual_seed(0))
    mixture = method.mixed_replay(old)
    assert (mixture.first == 0).all()
    assert (mixture.second == 1).all()
    assert len(mixture.first) == 20


def test_a_replay_batch_that_plain_rounding_leaves_empty_stays_as_it_is() -> None:
    method = through_first_task(
        feedback=1.0, pair_kernel="gaussian", pair_rounding="plain", projection=0
    )
    method.progress.task, method.progress.steps_in_task = 1, 1
    method.prototypes = torch.eye(CLASSES, method.prototypes.shape[1])
    old = method.sample_replay(16)
    mixture = method.mixed_replay(old)
    assert torch.equal(mixture.images, old.images)
    assert not mixture.weight.any()


# Prototypes


def test_prototypes_of_replay_are_the_mean_of_both_views() -> None:
    method = learner()
    method.network.double()
    generator = torch.Generator().manual_seed(0)
    width = method.network.encoder.out_features
    for labels in (torch.tensor([0, 3, 3, 9, 0, 3]), torch.tensor([3, 1, 1, 1])):
        both = torch.randn(2, len(labels), width, generator=generator, dtype=torch.float64)
        method.ope_seen(both.flatten(0, 1), labels)
        z = normalize(method.network.project(both), dim=2)
        for k in range(CLASSES):  # what another batch held of a class counts no more
            of_class = z[:, labels == k]
            expected = of_class.mean(dim=(0, 1)) if of_class.numel() else z.new_zeros(32)
            torch.testing.assert_close(method.prototypes[k], expected)
        assert not method.prototypes.requires_grad


def test_mixed_images_contrast_by_their_fractional_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    method = through_first_task(mixup_probability=1.0)
    stepper(method).step(SECOND[0])
    mixtures: list[Mixture] = []
    contrasted: list[Tensor] = []
    feedback, loss = method.mixed_replay, losses.replay_instance_loss

    def note_mixture(old: Labelled) -> Mixture:
        mixtures.append(feedback(old))
        return mixtures[-1]

    def note_labels(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
        contrasted.append(labels)
        return loss(similarity, labels, temperature)

    monkeypatch.setattr(method, "mixed_replay", note_mixture)
    monkeypatch.setattr(losses, "replay_instance_loss", note_labels)
    stepper(method).step(SECOND[1])
    ((_, first, second, weight),), (labels,) = mixtures, contrasted
    fractional = (1 - weight) * first + weight * second
    blocks = torch.arange(16)[:, None] * CLASSES
    torch.testing.assert_close(labels, (fractional + blocks).flatten(), rtol=0, atol=1e-4)
    assert ((fractional - fractional.round()).abs() > 0.01).sum() > 5


def test_replay_prototypes_without_new_classes() -> None:
    method = through_first_task(augmentation="none", seen_without_new=True)
    for batch in SECOND[:2]:
        terms = stepper(method).step(batch)
        assert terms["ope_seen"] > 0
    assert method.progress.seen_before_task == {0, 1}
    images, labels = method.sample_replay(64)
    assert set(labels.tolist()) == {0, 1, 2, 3}
    features = method.network.features(method.two_views(images))
    loss = method.ope_seen(features, labels)["ope_seen"]
    assert method.prototypes[:4].any(dim=1).all()  # feedback still knows all classes

    z = normalize(method.network.project(method.network.features(torch.cat([images, images]))))
    first, second = z.chunk(2)
    old = labels < 2
    expected, _, _ = losses.prototype_contrast(first[old], second[old], labels[old], CLASSES, 0.5)
    torch.testing.assert_close(loss, expected)
    everything, _, _ = losses.prototype_contrast(first, second, labels, CLASSES, 0.5)
    assert not torch.isclose(loss, everything)


@pytest.mark.parametrize("numbers", [[2, 3, 0, 1], [9, 0, 4, 7]])
def test_replay_prototypes_without_new_classes_whatever_their_numbers(numbers: list[int]) -> None:
    """The old classes are those of earlier tasks, not those with low numbers."""
    method = learner(augmentation="none", seen_without_new=True)
    renumbered = torch.tensor([*numbers, *range(CLASSES)])
    for batch in (*FIRST, *SECOND[:3]):
        labels = renumbered[batch.labels]
        classes = tuple(sorted(labels.unique().tolist()))
        stepper(method).step(replace(batch, labels=labels, classes=classes))
    assert method.old_classes.nonzero().flatten().tolist() == sorted(numbers[:2])
    images, labels = method.sample_replay(64)
    features = method.network.features(method.two_views(images))
    loss = method.ope_seen(features, labels)["ope_seen"]
    first, second = method.network.embed(features).chunk(2)
    old = torch.isin(labels, torch.tensor(numbers[:2]))
    expected, *_ = losses.prototype_contrast(first[old], second[old], labels[old], CLASSES, 0.5)
    torch.testing.assert_close(loss, expected)
    new, *_ = losses.prototype_contrast(first[~old], second[~old], labels[~old], CLASSES, 0.5)
    assert not torch.isclose(loss, new)


def test_replay_prototypes_without_new_classes_are_no_term_in_the_first_task() -> None:
    method = learner(seen_without_new=True)
    for batch in FIRST[:3]:
        terms = stepper(method).step(batch)
        assert all(term.isfinite() for term in terms.values())
    assert terms["ope_seen"] == 0
    for parameter in method.network.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
        assert parameter.isfinite().all()


# Terms of the loss, and the ablations that leave some out

EVERY_TERM = {"ins_new", "ins_replay", "ope_new", "ope_seen", "ce"}
LEFT_OUT: Mapping[str, set[str]] = {
    "baseline": {"ope_new", "ope_seen"},
    "without-ope": {"ope_new", "ope_seen"},
    "without-new": {"ope_new"},
    "without-seen": {"ope_seen"},
}


@pytest.mark.parametrize("later", [False, True])
def test_terms_are_those_of_the_right_views(later: bool) -> None:
    """Every term again, where −x is the augmentation of x and similarities have no slice."""
    method = learner(feature_slice=False, rotations=4, mixup_probability=1.0)
    in_float64(method)
    method.augment = lambda images: -images  # type: ignore[method-assign] # of this object alone
    stream = [*FIRST, *SECOND[:2]] if later else FIRST[:3]
    for batch in stream[:-1]:
        stepper(method).step(batch)
    network = deepcopy(method.network)
    sample_replay, feedback = method.sample_replay, method.mixed_replay
    seen: list[Labelled] = []
    replayed: list[Mixture] = []

    def note_seen(count: int) -> Labelled:
        seen.append(sample_replay(count))
        return seen[-1]

    def note_replay(old: Labelled) -> Mixture:
        replayed.append(feedback(old))
        return replayed[-1]

    method.sample_replay = note_seen  # type: ignore[method-assign] # likewise
    method.mixed_replay = note_replay  # type: ignore[method-assign] # likewise
    terms = stepper(method).step(stream[-1])

    def embed(*views: Tensor) -> Tensor:
        return normalize(network.project(network.features(torch.cat(views))))

    def rotated(labels: Tensor) -> Tensor:
        return torch.cat([labels + CLASSES * block for block in range(4)])

    new, labels = rotations(method.normalise(stream[-1].images), 4), stream[-1].labels
    n, ((old, old_labels),) = len(labels), seen
    if later:
        (replay,) = replayed
        images = rotations(replay.images, 4)
        z = embed(new, -new, images, -images)
        of_replay = 0.5 * z[2 * len(new) :] @ z[2 * len(new) :].T
        expected = {
            "ins_replay": losses.replay_instance_loss(of_replay, rotated(replay.labels), 0.07),
            "ce": losses.mixup_cross_entropy(
                network(-replay.images), replay.first, replay.second, replay.weight
            ),
        }
    else:
        z = embed(new, -new)
        expected = {"ce": cross_entropy(network(-new[:n]), labels)}
    z = z[: 2 * len(new)]
    scale = 0.5 if later else 1.0
    expected["ins_new"] = losses.new_instance_loss(scale * z @ z.T, rotated(labels), 0.07)
    raw, varied = z.chunk(2)
    expected["ope_new"], *_ = losses.prototype_contrast(raw[:n], varied[:n], labels, CLASSES, 0.5)
    raw, varied = embed(old, -old).chunk(2)
    expected["ope_seen"], *_ = losses.prototype_contrast(raw, varied, old_labels, CLASSES, 0.5)
    torch.testing.assert_close(terms, {name: term.detach() for name, term in expected.items()})


@pytest.mark.parametrize("recipe", [None, *recipes("onpro")])
def test_terms_of_every_recipe(recipe: str | None) -> None:
    settings = settings_for("onpro", "tiny", recipe)
    assert isinstance(settings, OnProSettings)
    rotated = min(settings.rotations, 4)
    projected = min(settings.projection, 32)
    method = learner(**vars(settings) | {"rotations": rotated, "projection": projected})
    left_out = LEFT_OUT.get(recipe or "", set())

    terms = [stepper(method).step(batch) for batch in FIRST[:2]]
    assert set(terms[0]) == {"ins_new", "ope_new", "ce"} - left_out
    assert set(terms[1]) == {"ins_new", "ope_new", "ope_seen", "ce"} - left_out
    terms += [stepper(method).step(batch) for batch in SECOND[:3]]
    for later in terms[2:]:
        assert set(later) == EVERY_TERM - left_out
    for step, descended in zip(terms, method.descended, strict=True):
        assert not any(term.requires_grad for term in step.values())
        assert torch.stack(list(step.values())).sum().item() == pytest.approx(descended, rel=1e-5)
        assert all(term.isfinite() for term in step.values())


def test_without_prototypes_and_feedback_nothing_goes_through_for_them() -> None:
    method = through_first_task(new_prototypes=False, seen_prototypes=False, mixup=False)
    stepper(method).step(SECOND[0])
    assert method.sizes == [320 + 32 * 28, 28]
    assert not method.prototypes.any()


@pytest.mark.parametrize("recipe", ["without-ope", "without-seen"])
def test_feedback_needs_prototypes_even_where_they_are_no_term(recipe: str) -> None:
    method = through_first_task(**recipes("onpro")[recipe].values)
    stepper(method).step(SECOND[0])
    assert method.sizes == [320 + 32 * 28, 28, 2 * 28]
    assert method.prototypes.any()


def test_without_any_prototype_term_the_projector_learns_from_images_alone() -> None:
    """A huge temperature silences the instance loss; then nothing moves the projector."""
    silent: dict[str, Any] = {"instance_temperature": 1e9, "augmentation": "none"}
    gradients = {}
    for recipe in ("without-ope", "without-new", "without-seen"):
        method = learner(**silent | dict(recipes("onpro")[recipe].values))
        for batch in (*FIRST[:2], SECOND[0]):
            stepper(method).step(batch)
        projector = method.network.projector
        assert projector is not None
        assert projector.weight.grad is not None
        gradients[recipe] = projector.weight.grad.norm().item()
    assert gradients["without-ope"] < 1e-6
    assert gradients["without-new"] > 1e-4
    assert gradients["without-seen"] > 1e-4


@pytest.mark.parametrize("seen", ["replay", "both", "separate"])
def test_cross_entropy_of_later_tasks(seen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    method = through_first_task(cross_entropy=seen, augmentation="none")
    generator = torch.Generator().manual_seed(0)
    sizes: list[int] = []
    logits = torch.randn(9, CLASSES, generator=generator)

    def fixed(features: Tensor) -> Tensor:
        sizes.append(len(features))
        return logits[-len(features) :]

    monkeypatch.setattr(method.network.classifier, "forward", fixed)
    new, labels = torch.rand(4, 3, 8, 8, generator=generator), torch.tensor([2, 3, 3, 2])
    first, second = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([1, 1, 3, 2, 0])
    weight = torch.tensor([0.0, 0.3, 0.5, 1.0, 0.1])
    replay = Mixture(torch.rand(5, 3, 8, 8, generator=generator), first, second, weight)
    classified = method.classified(Labelled(new, labels), replay)
    loss = method.ce(classified.images, classified, len(labels))

    log_p = logits.log_softmax(dim=1).tolist()
    of_new = [-log_p[n][y] for n, y in enumerate(labels.tolist())]
    of_replay = [
        -(1 - w) * row[a] - w * row[b]
        for row, a, b, w in zip(
            log_p[4:], first.tolist(), second.tolist(), weight.tolist(), strict=True
        )
    ]
    expected = {
        "replay": sum(of_replay) / 5,
        "both": sum(of_new + of_replay) / 9,
        "separate": sum(of_new) / 4 + sum(of_replay) / 5,
    }
    assert loss.item() == pytest.approx(expected[seen], rel=1e-5)
    assert sizes == ([5] if seen == "replay" else [9])


@pytest.mark.parametrize("seen", ["replay", "both", "separate"])
def test_cross_entropy_of_the_first_task_is_that_of_new_images(seen: str) -> None:
    method = learner(cross_entropy=seen, augmentation="none")
    stepper(method).step(FIRST[0])
    new = method.normalise(FIRST[1].images)
    with torch.no_grad():
        expected = cross_entropy(method.network(new), FIRST[1].labels)
    torch.testing.assert_close(stepper(method).step(FIRST[1])["ce"], expected)


def test_new_images_reach_the_classifier_only_through_the_memory() -> None:
    method = through_first_task(augmentation="none")
    stepper(method).step(SECOND[0])
    head = method.network.classifier
    assert head.bias.grad is not None
    assert (head.bias.grad[2:] > 0).all()  # no image of these classes: only pushed down


# Similarities between images


def features(rows: int, width: int = 160) -> Tensor:
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(("task", "scale"), [(0, 0.9), (1, 0.3), (4, 0.3)])
def test_similarity_scale_of_first_and_later_tasks(task: int, scale: float) -> None:
    method = learner(feature_slice=False, similarity_scale_first=0.9, similarity_scale=0.3)
    method.progress.task = task
    z = normalize(method.network.project(features(6)))
    contrasted: list[Tensor] = []

    def note(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
        contrasted.append(similarity)
        return similarity.sum()

    method.ins(note, features(6), torch.zeros(3, dtype=torch.int64))
    torch.testing.assert_close(contrasted, [scale * z @ z.T])


def test_similarity_with_a_slice_of_the_features() -> None:
    method = learner()
    h = features(6)
    z, n = normalize(method.network.project(h)), normalize(h)
    candidates = [z @ n[:, d : d + 32].T + z @ z.T for d in range(160 - 32)]
    ours = method.contrast.similarity(h, 1.0)
    assert any(torch.allclose(ours, candidate, atol=1e-6) for candidate in candidates)
    assert not torch.allclose(ours, method.contrast.similarity(h, 1.0))  # another slice


def test_a_slice_starts_anywhere_but_never_reaches_the_last_feature() -> None:
    generator = torch.Generator().manual_seed(0)
    starts = {int(slice_start(160 - 32, generator)) for _ in range(3000)}
    assert starts == set(range(128))
    assert int(slice_start(0, generator)) == 0


def test_a_projection_as_wide_as_the_features_works() -> None:
    method = learner(projection=160, rotations=1)
    stepper(method).step(FIRST[0])
    assert method.prototypes.shape == (CLASSES, 160)


def test_without_projector_features_themselves_are_compared() -> None:
    method = learner(projection=0, rotations=4)
    assert method.network.projector is None
    assert method.prototypes.shape == (CLASSES, 160)
    n = normalize(features(6))
    torch.testing.assert_close(method.network.embed(features(6)), n)
    torch.testing.assert_close(method.contrast.similarity(features(6), 0.5), 0.5 * n @ n.T)
    for batch in (*FIRST[:2], *SECOND[:3]):
        assert set(terms := stepper(method).step(batch)) >= {"ins_new", "ce"}
        assert all(term.isfinite() for term in terms.values())


def test_instance_losses_official_and_supcon() -> None:
    labels = torch.tensor([0, 1, 1])
    h = features(2 * 4 * 3)
    rotated = torch.cat([labels + CLASSES * q for q in range(4)])
    for name in ("official", "supcon"):
        method = learner(
            instance_loss=name, rotations=4, feature_slice=False, instance_temperature=0.2
        )
        method.progress.task = 0
        similarity = method.contrast.similarity(h, 1.0)
        new = method.ins(losses.new_instance_loss, h, labels)
        replay = method.ins(losses.replay_instance_loss, h, labels)
        if name == "official":
            expected_new = losses.new_instance_loss(similarity, rotated, 0.2)
            expected_replay = losses.replay_instance_loss(similarity, rotated, 0.2)
            assert not torch.isclose(new, replay)
        else:
            per_anchor = losses.supervised_contrast(similarity, rotated.repeat(2), 0.2)
            expected_new = expected_replay = per_anchor.sum()
        torch.testing.assert_close(new, expected_new)
        torch.testing.assert_close(replay, expected_replay)


def test_prototype_temperature() -> None:
    labels = torch.tensor([0, 1, 1])
    h = features(2 * 3)
    for temperature in (0.5, 0.1):
        method = learner(rotations=1, prototype_temperature=temperature)
        z = normalize(method.network.project(h))
        expected, _, _ = losses.prototype_contrast(z[:3], z[3:], labels, CLASSES, temperature)
        torch.testing.assert_close(method.ope_new(h, labels)["ope_new"], expected)


# Settings as a whole


def test_adam_of_the_official_code() -> None:
    optimizer = learner(learning_rate=0.002, weight_decay=0.01).optimizer
    assert type(optimizer) is Adam
    assert optimizer.defaults["lr"] == 0.002
    assert optimizer.defaults["weight_decay"] == 0.01
    assert optimizer.defaults["betas"] == (0.9, 0.99)
    assert learner(betas=(0.5, 0.6)).optimizer.defaults["betas"] == (0.5, 0.6)


def test_papers_text_takes_the_papers_side_of_every_switch() -> None:
    settings = settings_for("onpro", "cifar10", "paper-text")
    assert isinstance(settings, OnProSettings)
    assert settings.pair_kernel == "gaussian"
    assert settings.pair_rounding == "plain"
    assert settings.instance_loss == "supcon"
    assert settings.views == "augmented"
    assert settings.betas == (0.9, 0.999)
    method = through_first_task(**dict(recipes("onpro")["paper-text"].values))
    for batch in SECOND[:3]:
        terms = stepper(method).step(batch)
        assert all(term.isfinite() for term in terms.values())
        assert method.sizes[-1] == 2 * 64  # no limit for each class
    for parameter in method.network.parameters():
        assert parameter.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"feedback": -0.1}, "feedback"),
        ({"feedback": 1.5}, "feedback"),
        ({"feedback": float("nan")}, "feedback"),
        ({"mixup_probability": 1.1}, "mixup probability"),
        ({"random_mixup_highest": 2.0}, "highest"),
        ({"feedback_mixup_beta": 0.0}, "beta"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"weight_decay": -1.0}, "weight decay"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"replay_batch": 0}, "replay batch"),
        ({"replay_per_class": -1}, "per class"),
        ({"prototype_temperature": 0.0}, "prototype temperature"),
        ({"instance_temperature": -0.07}, "instance temperature"),
        ({"similarity_scale": 0.0}, "similarity scale"),
        ({"similarity_scale_first": 0.0}, "similarity scale"),
        ({"projection": -1}, "projection"),
        ({"projection": 161}, "narrower"),
        ({"rotations": 3}, "rotations"),
        ({"pair_kernel": "cosine"}, "'inverse' or 'gaussian'"),
        ({"pair_rounding": "up"}, "'exact' or 'plain'"),
        ({"instance_loss": "triplet"}, "'official' or 'supcon'"),
        ({"views": "none"}, "'raw' or 'augmented'"),
        ({"cross_entropy": "new"}, "'replay' or 'both' or 'separate'"),
        ({"encoder": "resnet"}, "resnet18"),
        ({"augmentation": "ocn"}, "ocm"),
        ({"memory": 0}, "memory"),
    ],
)
def test_a_bad_value_is_refused_with_one_sentence(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(UserError) as refused:
        learner(**changes)
    sentence = str(refused.value)
    assert word in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("shape", "blocks", "word"),
    [((3, 9, 9), 16, "even"), ((3, 8, 10), 16, "square"), ((3, 8, 10), 4, "square")],
)
def test_images_that_cannot_be_rotated_are_refused(
    shape: tuple[int, int, int], blocks: int, word: str
) -> None:
    context = Context(shape, Normalise(DATA.mean, DATA.std), num_classes=2)
    with pytest.raises(UserError, match=word):
        OnPro(OnProSettings(**SMALL, rotations=blocks), context)  # type: ignore[arg-type]
    OnPro(OnProSettings(**SMALL, rotations=1), context)


def test_a_wide_projection_is_fine_without_the_slice() -> None:
    method = learner(projection=200, feature_slice=False, rotations=1)
    stepper(method).step(FIRST[0])
    assert method.prototypes.shape == (CLASSES, 200)


# Streams that announce nothing


def unannounced(batch: Batch) -> Batch:
    return replace(batch, task=None)


def test_heads_and_prototypes_grow_with_the_classes() -> None:
    method = learner(num_classes=None, rotations=4)
    assert method.network.classes == 0
    widths = []
    for task in range(3):
        for batch in STREAM[task][:3]:
            terms = stepper(method).step(unannounced(batch))
            assert all(term.isfinite() for term in terms.values())
        widths.append(method.network.classes)
        assert method.prototypes.shape == (method.network.classes, 32)
    assert widths == [2, 4, 6]
    assert method.prototypes.any(dim=1)[:4].all()
    assert method.predict(FIRST[0].images).shape == (10,)


def test_unseen_classes_begin_a_task() -> None:
    method = learner(num_classes=None, rotations=1)
    tasks = []
    for batch in (*FIRST[:3], *SECOND[:2], FIRST[3], *STREAM[2][:2]):
        stepper(method).step(unannounced(batch))
        tasks.append((method.progress.task, method.progress.steps_in_task))
    assert tasks == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]


def test_classes_arrive_one_by_one_and_in_any_order() -> None:
    method = learner(num_classes=None, rotations=1, feedback=1.0)
    for k in (7, 2, 9, 0):
        chosen = DATA.train.images[DATA.train.labels == k]
        for start in (0, 5, 10):
            images = chosen[start : start + 5]
            terms = stepper(method).step(Batch(images, torch.full((5,), k), None, (k,)))
            assert all(term.isfinite() for term in terms.values())
    assert method.network.classes == 10
    assert method.progress.seen == {0, 2, 7, 9}
    assert method.progress.task == 3
    assert method.prototypes.any(dim=1).nonzero().flatten().tolist() == [0, 2, 7, 9]


def test_one_class_in_the_memory_is_no_pair_but_no_problem() -> None:
    method = learner(num_classes=3, rotations=1, replay_per_class=0)
    images = DATA.train.images[DATA.train.labels == 0]
    zeros = torch.zeros(20, dtype=torch.long)
    stepper(method).step(Batch(images[:20], zeros, 0, (0,)))
    for _ in range(3):  # another task with the same class: prototypes of one class only
        terms = stepper(method).step(Batch(images[20:], zeros, 1, (0,)))
        assert all(term.isfinite() for term in terms.values())
    assert method.prototypes.any(dim=1).tolist() == [True, False, False]
