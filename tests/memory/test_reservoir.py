from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from onpro.memory import Memory
from onpro.memory.reservoir import (
    reservoir_batch,
    reservoir_sequential,
    sample_slots_batch,
    sample_slots_sequential,
    store,
)
from tests.golden.values import Golden

Update = Callable[..., Tensor]

SHAPE = (3, 2, 2)
POLICIES = pytest.mark.parametrize("update", [reservoir_batch, reservoir_sequential])


def item_images(numbers: Tensor, labels: Tensor) -> Tensor:
    """Images that tell their label (first channel) and their number (two bytes in the others)."""
    pixels = torch.stack([labels, numbers // 256, numbers % 256], dim=1).to(torch.uint8)
    return pixels[:, :, None, None].expand(-1, *SHAPE)


def numbers_in(memory: Memory) -> Tensor:
    return 256 * memory.images[:, 1, 0, 0].long() + memory.images[:, 2, 0, 0].long()


def feed(update: Update, memory: Memory, count: int, generator: torch.Generator) -> Tensor:
    """The next `count` items of the stream; their labels are their numbers modulo 7."""
    numbers = torch.arange(memory.seen, memory.seen + count)
    return update(memory, item_images(numbers, numbers % 7), numbers % 7, generator)


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def kept_share(
    update: Update, capacity: int, batches: list[int], trials: int, seed: int = 0
) -> Tensor:
    """For every item of the stream the share of trials after which it is stored."""
    generator = generator_of(seed)
    kept = torch.zeros(sum(batches))
    for _ in range(trials):
        memory = Memory(capacity, SHAPE, device="cpu")
        for count in batches:
            feed(update, memory, count, generator)
        kept[numbers_in(memory)] += 1
    return kept / trials


@pytest.mark.golden("baselines/reservoir.*")
def test_reservoir_b_agrees_with_the_official_code(golden: Golden) -> None:
    case = golden.group("baselines/reservoir.")
    memory = Memory(int(case["capacity"]), SHAPE, device="cpu")
    for drawn, after in zip(case["draws"], case["slots_after_each_batch"], strict=True):
        assert len(drawn) == int(case["batch"])
        numbers = torch.arange(memory.seen, memory.seen + len(drawn))
        labels = torch.zeros_like(numbers)
        store(memory, drawn[drawn >= 0].floor().long(), item_images(numbers, labels), labels)
        assert numbers_in(memory).tolist() == after[: memory.fill].tolist()


@POLICIES
def test_free_slots_fill_in_order(update: Update) -> None:
    memory = Memory(12, SHAPE, device="cpu")
    assert feed(update, memory, 5, generator_of(0)).tolist() == [0, 1, 2, 3, 4]
    assert feed(update, memory, 1, generator_of(0)).tolist() == [5]
    assert numbers_in(memory).tolist() == [0, 1, 2, 3, 4, 5]
    assert (memory.fill, memory.seen, memory.free) == (6, 6, 6)


def test_the_later_of_two_items_wins_a_slot() -> None:
    memory = Memory(3, SHAPE, device="cpu")
    numbers = torch.arange(7)
    slots = store(memory, torch.tensor([1, 9, 1, 0]), item_images(numbers, numbers), numbers)
    assert slots.tolist() == [3, 3, 2, 3, 3, 1, 0]
    assert numbers_in(memory).tolist() == [6, 5, 2]
    assert memory.labels.tolist() == [6, 5, 2]


@POLICIES
@settings(deadline=None, max_examples=60)
@given(
    capacity=st.integers(1, 40),
    batches=st.lists(st.integers(0, 60), max_size=8),
    seed=st.integers(0, 2**32),
)
def test_invariants(update: Update, capacity: int, batches: list[int], seed: int) -> None:
    generator = generator_of(seed)
    memory = Memory(capacity, SHAPE, device="cpu")
    for count in batches:
        before, seen = numbers_in(memory), memory.seen
        slots = feed(update, memory, count, generator)
        assert slots.shape == (count,)
        assert memory.seen == seen + count
        assert memory.fill == len(memory) == min(capacity, memory.seen)

        arrived = slots < memory.bin
        expected = torch.cat([before, before.new_zeros(memory.fill - len(before))])
        expected[slots[arrived]] = torch.arange(seen, seen + count)[arrived]
        assert torch.equal(numbers_in(memory), expected)
        assert len(set(slots[arrived].tolist())) == int(arrived.sum())

        assert torch.equal(memory.images[:, 0, 0, 0].long(), memory.labels)
        assert torch.equal(numbers_in(memory) % 7, memory.labels)


@POLICIES
def test_further_fields_follow_their_images(update: Update) -> None:
    extra = {"logits": ((2,), torch.float32)}
    memory = Memory(10, SHAPE, device="cpu", extra=extra)
    generator = generator_of(1)
    for first in range(0, 60, 6):
        numbers = torch.arange(first, first + 6)
        logits = torch.stack([numbers, -numbers], dim=1).float()
        update(memory, item_images(numbers, numbers), numbers, generator, logits=logits)
    assert torch.equal(memory.fields["logits"][:, 0].long(), numbers_in(memory))
    assert torch.equal(memory.fields["logits"][:, 1].long(), -numbers_in(memory))


@POLICIES
def test_one_seed_gives_one_memory_also_across_a_save(update: Update) -> None:
    straight, saved = (Memory(9, SHAPE, device="cpu") for _ in range(2))
    generators = generator_of(5), generator_of(5)
    for _ in range(6):
        feed(update, straight, 4, generators[0])
        feed(update, saved, 4, generators[1])
        resumed = Memory(9, SHAPE, device="cpu")
        resumed.load_state_dict(saved.state_dict())
        saved = resumed
    assert torch.equal(straight.images, saved.images)


def test_reservoir_b_accepts_all_of_the_batch_after_filling() -> None:
    generator = generator_of(2)
    for _ in range(50):
        memory = Memory(20, SHAPE, device="cpu")
        feed(reservoir_batch, memory, 20, generator)
        feed(reservoir_batch, memory, 1, generator)
        assert 20 in numbers_in(memory)


@pytest.mark.parametrize("seen", [0, 3, 4, 9])
def test_reservoir_b_draws_below_the_items_seen_before_the_rest_of_the_batch(seen: int) -> None:
    memory = Memory(4, SHAPE, device="cpu")
    memory.advance(seen)
    arriving = 3000
    draws = sample_slots_batch(memory, arriving, generator_of(6))
    assert len(draws) == arriving - max(0, 4 - seen)
    assert set(draws.tolist()) == set(range(max(4, seen)))  # each of them comes some 300 times


@pytest.mark.parametrize("seen", [0, 3, 4, 9])
def test_reservoir_s_draws_one_number_more_for_each_item(seen: int) -> None:
    generator, drawn = generator_of(7), []
    for _ in range(500):
        memory = Memory(4, SHAPE, device="cpu")
        memory.advance(seen)
        drawn.append(sample_slots_sequential(memory, 7, generator))
    first = max(4, seen)
    for place, draws in enumerate(torch.stack(drawn).T):
        assert set(draws.tolist()) == set(range(first + place + 1))


def test_reservoir_b_accepts_with_the_share_of_slots_in_items_seen() -> None:
    generator = generator_of(3)
    accepted = 0
    for _ in range(2000):
        memory = Memory(5, SHAPE, device="cpu")
        memory.advance(20)
        accepted += int(feed(reservoir_batch, memory, 1, generator)[0]) < memory.bin
    assert accepted / 2000 == pytest.approx(5 / 20, abs=0.04)


def test_reservoir_s_keeps_every_item_alike() -> None:
    share = kept_share(reservoir_sequential, capacity=8, batches=[3, 10, 1, 10, 8], trials=1500)
    expected = 8 / 32
    chi_square = float(((share - expected) ** 2).sum()) * 1500 / (expected * (1 - expected))
    assert float(share.sum()) == pytest.approx(8)
    assert chi_square < 32 + 5 * (2 * 32) ** 0.5


def test_reservoir_s_does_so_with_one_batch_larger_than_the_memory() -> None:
    share = kept_share(reservoir_sequential, capacity=4, batches=[20], trials=2000)
    torch.testing.assert_close(share, torch.full((20,), 4 / 20), atol=0.05, rtol=0)


def test_reservoir_b_prefers_recent_items() -> None:
    share = kept_share(reservoir_batch, capacity=8, batches=[8, 8, 8, 8], trials=1000)
    means = share.view(4, 8).mean(1)
    assert means[0] < means[3] - 0.05
    # The last batch: accepted with 8/24, kept unless a later item of the batch draws its slot.
    kept = [8 / 24 * (1 - 1 / 24) ** later for later in reversed(range(8))]
    assert float(means[3]) == pytest.approx(sum(kept) / 8, abs=0.03)


@POLICIES
def test_slots_are_drawn_alike(update: Update) -> None:
    generator = generator_of(4)
    hits = torch.zeros(11)
    memory = Memory(10, SHAPE, device="cpu")
    memory.advance(10)
    for _ in range(3000):
        memory.arrived.fill_(10)
        hits[feed(update, memory, 1, generator)] += 1
    stored = hits[:10]
    expected = float(stored.mean())
    assert float(((stored - expected) ** 2 / expected).sum()) < 9 + 5 * 18**0.5
