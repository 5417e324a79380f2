"""ASER: values of neighbours decide what is replayed and what is kept."""

from copy import deepcopy
from itertools import permutations
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.memory.shapley import Points, adversarial_scores, exchange, knn_shapley_values
from onpro.methods import aser
from onpro.methods.base import Labelled
from tests.methods.learners import batches, found_in, learner, refused, stepper, watch


def points(count: int, classes: int, seed: int, exists: list[bool] | None = None) -> Points:
    generator = torch.Generator().manual_seed(seed)
    return Points(
        torch.randn(count, 3, generator=generator),
        torch.randint(classes, (count,), generator=generator),
        torch.tensor(exists or [True] * count),
    )


def by_enumeration(x: Tensor, y: int, candidates: Points, neighbours: int) -> list[float]:
    """Shapley values by their definition: the mean gain over all orders of arrival."""

    def vote(coalition: list[int]) -> float:
        near = sorted(coalition, key=lambda i: float((candidates.features[i] - x).square().sum()))
        right = sum(int(candidates.labels[i]) == y for i in near[:neighbours])
        return right / neighbours

    count = len(candidates)
    values = [0.0] * count
    orders = list(permutations(range(count)))
    for order in orders:
        for position, i in enumerate(order):
            before = list(order[:position])
            values[i] += vote([*before, i]) - vote(before)
    return [value / len(orders) for value in values]


@pytest.mark.parametrize("neighbours", [1, 2, 3, 5])
def test_values_are_those_of_the_definition(neighbours: int) -> None:
    evaluated, candidates = points(3, 2, seed=1), points(5, 2, seed=2)
    values = knn_shapley_values(evaluated, candidates, neighbours)
    for row, x, y in zip(values, evaluated.features, evaluated.labels, strict=True):
        expected = by_enumeration(x, int(y), candidates, neighbours)
        assert row.tolist() == pytest.approx(expected, abs=1e-6)


def test_what_does_not_exist_has_no_value_and_changes_none() -> None:
    evaluated, candidates = points(4, 2, seed=3), points(6, 2, seed=4)
    kept = [0, 2, 3, 5]
    some = Points(
        candidates.features[kept], candidates.labels[kept], torch.ones(4, dtype=torch.bool)
    )
    exists = torch.tensor([i in kept for i in range(6)])
    masked = Points(candidates.features, candidates.labels, exists)
    values = knn_shapley_values(evaluated, masked, 3)
    torch.testing.assert_close(values[:, kept], knn_shapley_values(evaluated, some, 3))
    assert (values[:, ~exists] == 0).all()
    nobody = Points(evaluated.features, evaluated.labels, torch.zeros(4, dtype=torch.bool))
    assert (knn_shapley_values(nobody, masked, 3) == 0).all()


def test_scores_reward_standing_among_new_images_of_other_classes() -> None:
    def at(*where: float, label: int) -> Points:
        labels = torch.full((len(where),), label)
        return Points(torch.tensor(where)[:, None], labels, torch.ones(len(where)) > 0)

    candidates = at(0.0, 5.0, label=0)
    cooperative, adversarial = at(2.5, label=0), at(5.1, 5.2, label=1)
    crossing = Points(torch.tensor([[0.0], [5.0]]), torch.tensor([0, 1]), torch.ones(2) > 0)
    scores = adversarial_scores(crossing, cooperative, adversarial, 1)
    assert scores[0] > scores[1]  # the second helps the new images, which it must not
    nobody = Points(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.zeros(1) > 0)
    assert torch.equal(adversarial_scores(candidates, nobody, nobody, 1), torch.zeros(2))
    missing = Points(candidates.features, candidates.labels, torch.tensor([True, False]))
    assert adversarial_scores(missing, cooperative, adversarial, 1)[1] == -torch.inf


def test_an_exchange_keeps_the_best_in_the_slots_of_the_worst() -> None:
    values = torch.tensor([0.5, -0.2, 0.0, 0.3, 0.9, -0.1, 0.4])  # 4 stored, 3 new
    slots = torch.tensor([11, 12, 13, 14])
    exists = torch.ones(4, dtype=torch.bool)
    assert exchange(values, exists, slots, nowhere=99).tolist() == [13, 99, 12]
    exists[1] = False  # three stored: the best three of six stay
    assert exchange(values, exists, slots, nowhere=99).tolist() == [14, 99, 13]
    same = torch.zeros(7)
    assert exchange(same, exists, slots, nowhere=99).tolist() == [99, 99, 99]


def test_more_new_images_than_candidates() -> None:
    values = torch.tensor([0.0, 1.0, 2.0, 3.0])
    places = exchange(values, torch.ones(1) > 0, torch.tensor([7]), nowhere=9)
    assert places.tolist() == [9, 9, 7]


def test_replay_is_random_until_the_memory_has_had_to_choose() -> None:
    method = learner("aser", memory=30, replay_batch=20)
    forwards = watch(method)
    stream = batches(5)
    stepper(method).step(stream[0])
    assert [(len(f.images), f.training) for f in forwards] == [(10, True)]  # no replay
    for batch in stream[1:3]:
        stepper(method).step(batch)
    training = [len(f.images) for f in forwards if f.training]
    assert training == [10, 20, 30]
    assert all(f.training for f in forwards)
    stepper(method).step(stream[3])  # 30 images seen: still random, but now the memory chooses
    assert len(forwards[-2].images) == 30
    assert not forwards[-1].training
    del forwards[:]
    stepper(method).step(stream[4])
    scored, trained, judged = forwards
    assert [f.training for f in forwards] == [False, True, False]
    assert len(scored.images) == 2 + 2 + 10  # one of each class seen, another of each, the batch
    assert len(trained.images) == 2 + 10
    assert len(judged.images) == 2 + 6 + 10  # ⌊1.5⌋ of each class, ⌊1.5·4⌋ candidates, the batch


def test_values_are_taken_of_raw_images() -> None:
    method = learner("aser", memory=20)
    stream = batches(4)
    for batch in stream[:3]:
        stepper(method).step(batch)
    stored = method.normalise(method.memory.images)
    forwards = watch(method)
    stepper(method).step(stream[3])
    scored, trained, judged = forwards
    everything = torch.cat([stored, method.normalise(stream[3].images)])
    assert found_in(scored.images, everything).all()
    assert found_in(judged.images, everything).all()
    assert not found_in(trained.images, everything).all()


def test_feature_passes_leave_the_running_statistics_alone() -> None:
    method = learner("aser", memory=20)
    stepper(method).step(batches(1)[0])
    before = method.network.encoder.bn1.running_mean.clone()
    method.eval_features(method.normalise(batches(1)[0].images))
    assert torch.equal(method.network.encoder.bn1.running_mean, before)
    assert method.network.training


def test_a_class_is_rare_below_a_random_share_of_at_most_one_in_classes() -> None:
    method = learner("aser", memory=16)  # of 4 classes: shares of 4/16, 9/16, 2/16, 1/16
    labels = torch.tensor([0] * 4 + [1] * 9 + [2] * 2 + [3])
    method.memory.write(torch.arange(16), torch.zeros(16, 3, 8, 8).byte(), labels)
    method.memory.advance(16)
    rare = torch.stack([method.is_rare(torch.arange(4)) for _ in range(400)]).float().mean(dim=0)
    assert rare[:2].tolist() == [0, 0]
    assert rare[2:].tolist() == pytest.approx([1 / 2, 3 / 4], abs=0.1)


def test_what_is_judged_does_not_judge_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cooperative set leaves out the candidates, candidates of an update its judges."""
    method = learner("aser", memory=20)
    for batch in [b for pair in zip(batches(2), batches(2, start=10), strict=True) for b in pair]:
        stepper(method).step(batch)
    judged: list[tuple[Points, Points]] = []

    def note_scores(candidates: Points, cooperative: Points, **others: Any) -> Tensor:
        judged.append((candidates, cooperative))
        return adversarial_scores(candidates=candidates, cooperative=cooperative, **others)

    def note_values(evaluated: Points, candidates: Points, neighbours: int) -> Tensor:
        new = 10
        judged.append((without_last(candidates, new), without_last(evaluated, new)))
        return knn_shapley_values(evaluated, candidates, neighbours)

    monkeypatch.setattr(aser, "adversarial_scores", note_scores)
    monkeypatch.setattr(aser, "knn_shapley_values", note_values)
    monkeypatch.setattr(method, "features", lambda *sets: [s.flatten(1).double() for s in sets])
    for batch in [*batches(8, start=2), *batches(2, start=12)]:
        stepper(method).step(batch)
    assert len(judged) == 20
    for candidates, judges in judged:
        of_judges = judges.features[judges.exists]
        assert len(of_judges) > 0
        assert not found_in(candidates.features[candidates.exists], of_judges).any()


def without_last(points: Points, count: int) -> Points:
    return Points(points.features[:-count], points.labels[:-count], points.exists[:-count])


def test_candidates_with_the_highest_scores_are_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    method = learner("aser", memory=20, replay_batch=2)
    for batch in [*batches(2), *batches(2, start=10)]:
        stepper(method).step(batch)
    ranked: list[int] = []

    def score(candidates: Points, **_: Any) -> Tensor:
        ranked.extend(candidates.labels.tolist())
        return torch.tensor([0.1, 0.4, -0.2, 0.3])  # an image of each class

    monkeypatch.setattr(aser, "adversarial_scores", score)
    replayed = method.retrieve(batch.images, batch.labels)
    assert replayed.labels.tolist() == [ranked[1], ranked[3]]


def test_at_most_one_image_of_each_class_is_replayed() -> None:
    method = learner("aser", memory=40, augmentation="none")
    for batch in batches(14):
        stepper(method).step(batch)
    replayed = method.retrieve(batches(1)[0].images, batches(1)[0].labels)
    labels = [label for label in replayed.labels.tolist() if label >= 0]
    assert sorted(labels) == sorted(set(labels)) == sorted(set(method.memory.labels.tolist()))
    several = learner("aser", memory=40, samples_per_class=5.5, replay_batch=12)
    for batch in batches(14):
        stepper(several).step(batch)
    replayed = several.retrieve(batches(1)[0].images, batches(1)[0].labels)
    assert len(replayed.images.unique(dim=0)) == len(replayed.labels) == 12
    assert (replayed.labels >= 0).all()


def test_a_class_without_stored_images_adds_no_image_to_batch_norm() -> None:
    """In the first step of a task, its classes have been met and nothing of them is stored."""
    method = learner("aser", memory=20, augmentation="none")
    for batch in batches(4):
        stepper(method).step(batch)
    stored = set(method.memory.labels.tolist())
    new = batches(1, start=10)[0]
    replays: list[Labelled] = []
    retrieve = method.retrieve

    def noted(*given: Tensor) -> Labelled:
        replays.append(retrieve(*given))
        return replays[-1]

    method.retrieve = noted
    stepper(method).step(new)
    (replayed,) = replays
    counts = replayed.labels >= 0
    assert set(replayed.labels[counts].tolist()) == stored
    assert len(replayed.labels) == len(stored | set(new.labels.tolist())) > len(stored)
    assert len(replayed.images.unique(dim=0)) == len(stored)


def test_one_mean_over_replayed_and_new_images() -> None:
    method = learner("aser", float64=True, memory=20, augmentation="none")
    for batch in batches(3):
        stepper(method).step(batch)
    method.memory.labels.fill_(1)  # class 0 has left the memory
    batch = batches(1, start=3)[0]
    network = deepcopy(method.network)
    forwards = watch(method)
    terms = stepper(method).step(batch)
    trained = next(f.images for f in forwards if f.training)
    assert len(trained) == 1 + 1 + 10  # the second stands in for class 0 and does not count
    logits = network(trained)[[0, *range(2, 12)]]
    expected = cross_entropy(logits, torch.cat([torch.tensor([1]), batch.labels]))
    torch.testing.assert_close(terms["ce"], expected.detach())


def test_the_memory_fills_in_order_and_stays_full() -> None:
    method = learner("aser", memory=25)
    stream = batches(6)
    for batch in stream[:2]:
        stepper(method).step(batch)
    assert torch.equal(method.memory.images, torch.cat([b.images for b in stream[:2]]))
    stepper(method).step(stream[2])
    assert len(method.memory) == 25
    for batch in stream[3:]:
        stepper(method).step(batch)
        seen = torch.cat([b.images for b in stream])
        assert found_in(method.memory.images, seen).all()
    assert len(method.memory) == 25
    assert method.memory.seen == 60


def test_new_classes_enter_the_memory() -> None:
    method = learner("aser", memory=30)
    for batch in batches(14):
        stepper(method).step(batch)
    assert (method.memory.labels >= 2).any()


def test_rotated_copies_are_classes_of_their_own() -> None:
    method = learner("aser-rot", memory=20, rotations=4)
    forwards = watch(method)
    for batch in batches(4):
        stepper(method).step(batch)
    assert method.network.classifier.out_features == 16
    assert method.network.classes == 4
    assert [len(f.images) for f in forwards if f.training][-1] == 4 * (2 + 10)
    assert method.predict(batches(1)[0].images).max() < 4


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"neighbours": 0}, "neighbours"),
        ({"samples_per_class": 0.9}, "samples per class"),
        ({"samples_per_class": float("nan")}, "samples per class"),
        ({"replay_batch": 0}, "replay batch"),
        ({"learning_rate": 0.0}, "learning rate"),
        ({"memory": 0}, "memory"),
    ],
)
def test_a_bad_value_is_refused(changes: dict[str, Any], word: str) -> None:
    refused("aser", word, **changes)
