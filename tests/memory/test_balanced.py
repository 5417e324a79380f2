"""The balanced memory: equal classes, each a uniform sample of its items."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onpro.memory import Memory
from onpro.memory.balanced import KEY, balanced
from tests.memory.test_reservoir import SHAPE, generator_of, item_images, numbers_in


def memory_of(capacity: int) -> Memory:
    return Memory(capacity, SHAPE, device="cpu", extra={"key": KEY})


def feed(memory: Memory, labels: Tensor, generator: torch.Generator) -> Tensor:
    numbers = torch.arange(memory.seen, memory.seen + len(labels))
    return balanced(memory, item_images(numbers, labels), labels, generator)


def water_level(arrived: Counter[int], capacity: int) -> list[int]:
    """How many items each class keeps, most first: all classes up to one level."""
    kept: Counter[int] = Counter()
    while sum(kept.values()) < min(capacity, sum(arrived.values())):
        left = [label for label in arrived if kept[label] < arrived[label]]
        kept[min(left, key=lambda label: kept[label])] += 1
    return sorted(kept.values())


@settings(max_examples=40, deadline=None)
@given(
    capacity=st.integers(1, 12),
    stream=st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=9), max_size=8),
)
def test_classes_are_as_equal_as_the_stream_allows(capacity: int, stream: list[list[int]]) -> None:
    memory, generator = memory_of(capacity), generator_of(0)
    arrived: Counter[int] = Counter()
    for labels in stream:
        slots = feed(memory, torch.tensor(labels), generator)
        arrived.update(labels)
        stored = Counter(memory.labels.tolist())
        # Items that were dropped do not come back, so that no class has more than there is.
        assert sum(stored.values()) == min(capacity, sum(arrived.values()))
        assert max(stored.values()) <= max(water_level(arrived, capacity))
        assert memory.images[:, 0, 0, 0].tolist() == memory.labels.tolist()
        assert len(set(numbers_in(memory).tolist())) == len(memory)
        kept = slots[slots < memory.bin]
        first = memory.seen - len(labels)
        assert numbers_in(memory)[kept].tolist() == [
            first + i for i, slot in enumerate(slots.tolist()) if slot < memory.bin
        ]


def test_new_classes_get_as_many_slots_as_old_ones() -> None:
    memory, generator = memory_of(12), generator_of(1)
    for task in range(3):
        for _ in range(20):
            labels = torch.randint(2 * task, 2 * task + 2, (5,), generator=generator)
            feed(memory, labels, generator)
    assert memory.labels.bincount().tolist() == [2] * 6
    assert memory.seen == 300


@pytest.mark.parametrize("item", [0, 7])
def test_each_item_of_a_class_is_kept_as_often(item: int) -> None:
    """4 of the 10 items of class 0, whenever they arrived; then class 1 leaves 2."""
    trials, kept = 400, 0
    generator = generator_of(2)
    for _ in range(trials):
        memory = memory_of(4)
        for _ in range(2):
            feed(memory, torch.zeros(5, dtype=torch.int64), generator)
        feed(memory, torch.ones(5, dtype=torch.int64), generator)
        kept += item in numbers_in(memory).tolist()
    # A binomial of 400 trials at 0.2 has a deviation of 8.
    assert abs(kept - 80) < 4 * 8
