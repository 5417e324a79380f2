import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onpro.memory import Memory, retrieval


def holding(labels: list[int], capacity: int = 64) -> Memory:
    """A memory whose slot i holds an item of class labels[i]."""
    memory = Memory(capacity, (1, 1, 1), device="cpu")
    slots = torch.arange(len(labels))
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    memory.write(slots, images, torch.tensor(labels, dtype=torch.int64))
    memory.advance(len(labels))
    return memory


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_alike(hits: Tensor) -> None:
    """Counts that are all drawn with one probability: a generous chi-square test."""
    expected = float(hits.mean())
    freedom = len(hits) - 1
    chi_square = float(((hits - expected) ** 2 / expected).sum())
    assert chi_square < freedom + 5 * (2 * freedom) ** 0.5


labels_and_seed = given(
    labels=st.lists(st.integers(0, 5), max_size=40),
    count=st.integers(0, 50),
    seed=st.integers(0, 2**32),
)
quick = settings(deadline=None, max_examples=50)


@quick
@labels_and_seed
def test_uniform_gives_distinct_filled_slots(labels: list[int], count: int, seed: int) -> None:
    slots = retrieval.uniform(holding(labels), count, generator_of(seed))
    assert slots.shape == (min(count, len(labels)),)
    assert len(set(slots.tolist())) == len(slots)
    assert set(slots.tolist()) <= set(range(len(labels)))


def test_uniform_draws_all_items_alike() -> None:
    memory, generator, hits = holding([0] * 10), generator_of(0), torch.zeros(10)
    for _ in range(2000):
        hits[retrieval.uniform(memory, 3, generator)] += 1
    assert_alike(hits)


@quick
@labels_and_seed
def test_where_gives_eligible_items_first(labels: list[int], count: int, seed: int) -> None:
    memory = holding(labels)
    eligible = memory.labels < 2
    slots, valid = retrieval.where(memory, eligible, count, generator_of(seed))
    assert len(slots) == len(valid) == min(count, len(labels))
    assert torch.equal(valid, eligible[slots])
    assert int(valid.sum()) == min(count, int(eligible.sum()))
    assert valid.tolist() == sorted(valid.tolist(), reverse=True)
    assert len(set(slots.tolist())) == len(slots)


def test_where_draws_eligible_items_alike() -> None:
    memory, generator, hits = holding([0, 1] * 6), generator_of(1), torch.zeros(12)
    for _ in range(2000):
        slots, valid = retrieval.where(memory, memory.labels == 1, 2, generator)
        assert valid.all()
        hits[slots] += 1
    assert not hits[::2].any()
    assert_alike(hits[1::2])


@quick
@labels_and_seed
def test_per_class_gives_so_many_of_each(labels: list[int], count: int, seed: int) -> None:
    memory, num_classes, generator = holding(labels), 7, generator_of(seed)
    exclude = torch.rand(len(labels), generator=generator) < 0.3
    for excluded in (None, exclude):
        slots, valid = retrieval.per_class(memory, count, num_classes, generator, excluded)
        assert len(slots) == len(valid) == (num_classes * count if labels else 0)
        chosen = slots[valid]
        assert len(set(chosen.tolist())) == len(chosen)
        available = torch.ones(len(labels), dtype=torch.bool) if excluded is None else ~excluded
        assert available[chosen].all()
        for label in range(num_classes):
            stored = int((available & (memory.labels == label)).sum())
            assert int((memory.labels[chosen] == label).sum()) == min(count, stored)
        owner = torch.arange(num_classes).repeat_interleave(count)[: len(slots)]
        assert torch.equal(memory.labels[chosen], owner[valid])


def test_per_class_draws_the_items_of_a_class_alike() -> None:
    memory, generator, hits = holding([0, 0, 1, 0, 0, 1, 0]), generator_of(2), torch.zeros(7)
    for _ in range(2000):
        slots, valid = retrieval.per_class(memory, 2, 2, generator)
        hits[slots[valid]] += 1
    assert_alike(hits[[0, 1, 3, 4, 6]])
    assert hits[2] == hits[5] == 2000


def test_of_classes_answers_every_request() -> None:
    memory, generator = holding([4, 1, 4, 0, 1, 4, 9]), generator_of(5)
    requests = torch.randint(4, (64,), generator=generator)
    classes = torch.tensor([0, 1, 4, 9])[requests]
    slots = retrieval.of_classes(memory, classes, generator)
    assert torch.equal(memory.labels[slots], classes)


def test_of_classes_draws_the_items_of_a_class_alike_and_again() -> None:
    memory, generator, hits = holding([2, 0, 2, 2, 1, 2]), generator_of(6), torch.zeros(6)
    slots = retrieval.of_classes(memory, torch.full((4000,), 2), generator)
    hits.index_add_(0, slots, torch.ones(4000))
    assert hits[1] == hits[4] == 0
    assert_alike(hits[[0, 2, 3, 5]])


def test_of_classes_gives_a_filled_slot_for_an_absent_class() -> None:
    memory = holding([1, 3])
    slots = retrieval.of_classes(memory, torch.tensor([0, 2, 7]), generator_of(7))
    assert slots.max() < memory.fill


def test_of_classes_needs_something_stored() -> None:
    with pytest.raises(ValueError, match="empty"):
        retrieval.of_classes(holding([]), torch.tensor([0]), generator_of(0))


def test_class_counts() -> None:
    assert retrieval.class_counts(holding([1, 3, 1, 1]), 5).tolist() == [0, 3, 0, 1, 0]
    assert retrieval.class_counts(holding([]), 3).tolist() == [0, 0, 0]
