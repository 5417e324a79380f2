"""A class that is given up leaves nothing that could be shown or predicted."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError

from onpro.memory import Memory
from onpro.memory.reservoir import reservoir_batch
from onpro.methods import methods
from onpro.nn import GrowingLinear
from onpro.training.statefile import load_state


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


def test_a_class_that_is_not_known_is_named(make: Any, photos: Any) -> None:
    classifier = make().partial_fit(*photos(6))
    with pytest.raises(ValueError, match="the class 'zebra' is not known"):
        classifier.forget("zebra")


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


CLASSES = 14
"""A number that no layer is wide; a network of before the last class has one output less."""


def of_class(value: Any, label: int, path: str = "") -> dict[str, torch.Tensor]:
    """Whatever a state holds for one class: the slices of every side that has a place a class."""
    if isinstance(value, torch.Tensor):
        blocks = {n * outputs: outputs for n in (CLASSES - 1, CLASSES) for outputs in (1, 4)}
        return {
            f"{path}, side {side}": value.narrow(side, label * blocks[size], blocks[size])
            for side, size in enumerate(value.shape)
            if size in blocks
        }
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {
        place: slices
        for key, item in items
        if isinstance(item, (dict, list, tuple, torch.Tensor))
        for place, slices in of_class(item, label, f"{path}/{key}").items()
    }


def holds_class(state: Any, label: int) -> bool:
    """Whether labels of a class are stored anywhere in a method's state."""
    if not isinstance(state, dict):
        return False
    labels = state.get("labels")
    some = labels if isinstance(labels, list) else [labels]
    here = any(bool((each == label).any()) for each in some if isinstance(each, torch.Tensor))
    return here or any(holds_class(item, label) for item in state.values())


@pytest.mark.parametrize("method", sorted(methods()))
def test_no_state_of_any_method_depends_on_a_forgotten_class(
    make: Any, photos: Any, tmp_path: Path, method: str
) -> None:
    """Two streams that differ in one class alone leave equal traces of it: none."""
    gone = 3
    images, labels = photos(3 * CLASSES, classes=CLASSES)
    order = np.argsort(labels, kind="stable")
    changed = np.where((labels == gone)[:, None, None, None], 255 - images, images)
    few = {"epochs": 2} if method == "gdumb" else {}
    left = []
    for stream in (images, changed):
        classifier = make(method, memory=40, seed=2, batch_size=3, **few)
        classifier.partial_fit(stream[order], labels[order])
        classifier.predict(stream[:2])
        classifier.forget(gone)
        classifier.save(tmp_path / "c")
        state = load_state(tmp_path / "c", kind="classifier")["learner"]["method"]
        assert not holds_class(state, gone)
        left.append(of_class(state, gone))
        assert left[-1].keys() == of_class(classifier._model.method.state_dict(), gone).keys()
    assert left[0], "a method keeps something for each class"
    for place, trace in left[0].items():
        assert torch.equal(trace, left[1][place]), place


def test_gdumb_has_learned_its_memory_when_it_is_asked(make: Any, photos: Any) -> None:
    """Even if all classes come with the first batch, so that no new one ever ends a task."""
    images, labels = photos(30)
    classifier = make("gdumb", memory=30, epochs=20, batch_size=30).partial_fit(images, labels)
    assert classifier.score(images, labels) > 0.9
    shifted = (labels + 1) % 3 + 10
    classifier.partial_fit(images[:15], shifted[:15])
    assert set(classifier.predict(images)) & {10, 11, 12}


def test_gdumb_trains_again_if_its_training_was_interrupted(
    make: Any, photos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = photos(20)
    broken, usual = (make("gdumb", epochs=2).partial_fit(images, labels) for _ in range(2))

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(type(broken.method_), "rehearse", interrupt)
        with pytest.raises(KeyboardInterrupt):
            broken.predict(images)
    np.testing.assert_array_equal(broken.predict_proba(images), usual.predict_proba(images))


def test_asking_gdumb_does_not_change_what_it_learns(
    make: Any, photos: Any, fingerprint: Any, tmp_path: Path
) -> None:
    images, labels = photos(20)
    asked, silent = (make("gdumb", memory=10, epochs=2, seed=1) for _ in range(2))
    for start in range(0, 20, 5):
        batch = slice(start, start + 5)
        asked.partial_fit(images[batch], labels[batch]).predict(images)
        silent.partial_fit(images[batch], labels[batch])
    np.testing.assert_array_equal(asked.predict_proba(images), silent.predict_proba(images))
    once = fingerprint(asked)
    asked.predict(images)
    assert fingerprint(asked) == once, "the memory is trained on once"
    asked.save(tmp_path / "c")
    loaded = type(asked).load(tmp_path / "c", device="cpu")
    np.testing.assert_array_equal(asked.predict_proba(images), loaded.predict_proba(images))
    assert fingerprint(loaded) == once
