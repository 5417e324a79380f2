"""A class that is given up leaves nothing that could be shown or predicted."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from onpro.memory import Memory
from onpro.memory.reservoir import reservoir_batch
from onpro.nn import GrowingLinear


def test_a_forgotten_class_is_gone(make: Any, photos: Any) -> None:
    images, labels = photos(40)
    names = np.array(["wren", "robin", "crow"])[labels]
    classifier = make(memory=20).partial_fit(images, names)
    assert classifier.forget("robin") is classifier
    assert classifier.classes_.tolist() == ["wren", "crow"]
    assert "robin" not in classifier.memory_.labels
    assert set(classifier.predict(images)) <= {"wren", "crow"}
    assert classifier.predict_proba(images).shape == (40, 2)
    assert classifier.n_seen_ == 40
    seen = names != "robin"
    for _ in range(3):
        classifier.partial_fit(images[seen], names[seen])
    assert classifier.score(images[seen], names[seen]) > 0.9


def test_a_class_that_comes_back_is_new(make: Any, photos: Any) -> None:
    images, labels = photos(30)
    classifier = make(memory=30).partial_fit(images, labels).forget(0)
    for _ in range(3):
        classifier.partial_fit(images, labels)
    assert classifier.classes_.tolist() == [1, 2, 0]
    assert classifier.score(images, labels) > 0.9


def test_everything_may_be_forgotten(make: Any, photos: Any) -> None:
    images, labels = photos(20)
    for method in ("er", "onpro"):
        classifier = make(method, memory=5).partial_fit(images, np.sort(labels))
        for label in (2, 0, 1):
            classifier.forget(label)
        with pytest.raises(NotFittedError):
            classifier.predict(images)
        for _ in range(3):
            classifier.partial_fit(images, labels)
        assert np.isfinite(classifier.predict_proba(images)).all()


def test_a_memory_that_is_empty_again_is_no_trouble(make: Any, photos: Any) -> None:
    """With one slot, the memory may hold the forgotten class alone."""
    images, labels = photos(20)
    for method in ("er", "onpro"):
        classifier = make(method, memory=1).partial_fit(images, np.sort(labels))
        classifier.forget(int(classifier.memory_.labels[0]))
        assert len(classifier.memory_.labels) == 0
        classifier.partial_fit(images, labels).partial_fit(images, labels)
        assert np.isfinite(classifier.predict_proba(images)).all()


def test_forgetting_survives_a_save(make: Any, photos: Any, tmp_path: Any) -> None:
    images, labels = photos(20)
    classifier = make().partial_fit(images, labels).forget(1)
    classifier.save(tmp_path / "c.onpro")
    loaded = type(classifier).load(tmp_path / "c.onpro", device="cpu")
    assert loaded.classes_.tolist() == [0, 2]
    for each in (classifier, loaded):
        each.partial_fit(images, labels)
    np.testing.assert_array_equal(loaded.predict_proba(images), classifier.predict_proba(images))


@pytest.mark.parametrize("label", ["a", 9, float("nan"), [1], None])
def test_only_what_was_learned_can_be_forgotten(
    make: Any, photos: Any, fingerprint: Any, label: Any
) -> None:
    classifier = make().partial_fit(*photos(6))
    before = fingerprint(classifier)
    with pytest.raises(ValueError, match=r"label|class"):
        classifier.forget(label)
    assert fingerprint(classifier) == before


def test_removed_items_leave_no_pixel_in_the_storage() -> None:
    memory = Memory(4, (3, 2, 2), device="cpu", extra={"place": ((), torch.int64)})
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 7, 0, 7, 7, 0, 7])
    images = (100 + labels)[:, None, None, None].expand(-1, 3, 2, 2).to(torch.uint8)
    reservoir_batch(memory, images, labels, generator, place=torch.arange(7))
    kept = memory.fields["place"][memory.labels == 0].tolist()
    memory.remove(7)
    assert memory.labels.tolist() == [0] * len(kept)
    assert memory.fields["place"].tolist() == kept
    assert memory.seen == 7
    assert not (memory._images == 107).any()
    reservoir_batch(memory, images[:3], labels[:3], generator, place=torch.arange(3))
    assert len(memory) == min(4, len(kept) + 3)


def test_a_renewed_output_is_as_never_trained() -> None:
    generator = torch.Generator().manual_seed(0)
    head = GrowingLinear(4, 3, generator=generator)
    optimizer = torch.optim.Adam(head.parameters(), 0.1)
    head(torch.ones(2, 4)).square().sum().backward()
    optimizer.step()
    before = head.weight.detach().clone()
    head.renew(1, generator=generator, optimizer=optimizer)
    assert torch.equal(head.weight[[0, 2]], before[[0, 2]])
    assert not torch.equal(head.weight[1], before[1])
    for parameter in (head.weight, head.bias):
        averages = optimizer.state[parameter]["exp_avg"]
        assert not averages[1].any()
        assert averages[[0, 2]].all()
