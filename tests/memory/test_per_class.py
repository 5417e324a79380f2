"""The memory with a quota for each class, against a list for each class."""

import pytest
import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.memory.per_class import PerClassMemory


def empty(capacity: int) -> PerClassMemory:
    """A memory of numbers instead of images."""
    return PerClassMemory(capacity, (1,), device="cpu", dtype=torch.int64)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Feed:
    """Feeds numbered items to a memory and remembers their labels."""

    def __init__(self, memory: PerClassMemory, seed: int = 0) -> None:
        self.memory = memory
        self.generator = generator(seed)
        self.labels: list[int] = []

    def __call__(self, *labels: int) -> None:
        items = torch.arange(len(self.labels), len(self.labels) + len(labels))[:, None]
        self.labels += labels
        self.memory.update(items, torch.tensor(labels), sorted(set(labels)), self.generator)

    def stored(self) -> dict[int, list[int]]:
        """The items stored of each class, drawn until nothing is left."""
        slots, exists = self.memory.sample(self.memory.capacity, generator())
        replay = self.memory.take(slots[exists])
        items = sorted(replay.images.flatten().tolist())
        assert len(set(items)) == len(items)
        assert replay.labels.tolist() == [self.labels[i] for i in replay.images.flatten().tolist()]
        return {k: [i for i in items if self.labels[i] == k] for k in self.memory.classes}


def test_classes_share_the_slots() -> None:
    feed = Feed(empty(12))
    feed(5, 5, 5)
    assert feed.memory.quota == 12
    feed(2, 5)
    assert feed.memory.quota == 6
    assert feed.stored() == {5: [0, 1, 2, 4], 2: [3]}
    assert feed.memory.stored.tolist() == [4, 1]


def test_a_class_that_overflows_while_it_fills_keeps_the_newest() -> None:
    feed = Feed(empty(8))
    feed(0, 1)
    feed(*[0] * 6)
    assert feed.stored() == {0: [4, 5, 6, 7], 1: [1]}
    feed(*[1] * 9)
    assert feed.stored()[1] == [13, 14, 15, 16]


def test_a_full_class_is_a_reservoir_over_all_it_has_seen_this_batch_included() -> None:
    kept = torch.zeros(10)
    runs = 1000
    for seed in range(runs):
        feed = Feed(empty(4), seed)
        feed(0, 0, 0, 0)
        feed(0, 0, 0, 0, 0, 0)
        kept[feed.stored()[0]] += 1
    # Each of six draws one of ten numbers; the last of those that draw a slot keeps it.
    stays = 0.9**6
    enters = [4 * 0.1 * 0.9 ** (5 - position) for position in range(6)]
    expected = torch.tensor([stays] * 4 + enters)
    torch.testing.assert_close(kept / runs, expected, rtol=0, atol=0.05)


def test_a_full_class_leaves_the_slots_of_the_others_alone() -> None:
    feed = Feed(empty(8))
    feed(0, 0, 0, 0, 1, 1)
    for _ in range(40):
        feed(0)
    stored = feed.stored()
    assert len(stored[0]) == 4
    assert stored[1] == [4, 5]


def test_a_new_class_cuts_the_others_at_random() -> None:
    kept = torch.zeros(8)
    runs = 600
    for seed in range(runs):
        feed = Feed(empty(8), seed)
        feed(*[0] * 8)
        feed(1)
        assert feed.memory.stored.tolist() == [4, 1]
        kept[feed.stored()[0]] += 1
    torch.testing.assert_close(kept / runs, torch.full((8,), 0.5), rtol=0, atol=0.07)


def test_a_class_with_room_is_not_cut() -> None:
    feed = Feed(empty(12))
    feed(0, 0, 0, 1, 1, 1, 1, 1)
    feed(2, 2)
    assert feed.memory.quota == 4
    stored = feed.stored()
    assert stored[0] == [0, 1, 2]
    assert len(stored[1]) == 4
    feed(0, 0)  # and still knows which is its oldest
    assert feed.stored()[0] == [1, 2, 10, 11]


def test_more_classes_than_slots_store_nothing(caplog: pytest.LogCaptureFixture) -> None:
    feed = Feed(empty(2))
    feed(0, 1)
    assert not caplog.messages
    feed(2)
    feed(3)
    (warning,) = caplog.messages
    assert "2 images are too few for 3 classes" in warning
    assert feed.memory.quota == feed.memory.max_stored == 0
    feed(0)
    slots, exists = feed.memory.sample(5, generator())
    assert len(slots) == len(exists) == 0


def test_a_draw_picks_classes_alike_however_many_they_have() -> None:
    feed = Feed(empty(30))
    feed(*[0] * 10, *[1] * 3)
    classes = torch.zeros(2)
    random = generator()
    for _ in range(1500):
        slots, exists = feed.memory.sample(1, random)
        assert exists.all()
        classes[feed.memory.take(slots).labels] += 1
    torch.testing.assert_close(classes / 1500, torch.tensor([0.5, 0.5]), rtol=0, atol=0.05)
    slots, exists = feed.memory.sample(12, random)
    assert len(slots.unique()) == 12
    assert exists.all()


def test_what_is_missing_in_a_draw_is_filled_with_what_was_drawn() -> None:
    feed = Feed(empty(8))
    feed(0, *[1] * 9)  # 5 stored, but ten have arrived
    assert feed.memory.max_stored == 8
    slots, exists = feed.memory.sample(8, generator())
    assert exists.tolist() == [True] * 5 + [False] * 3
    assert torch.equal(slots[5:], slots[:3])


def test_a_class_can_be_erased() -> None:
    feed = Feed(empty(12))
    feed(0, 0, 1, 1, 2, 2)
    feed.memory.remove(1)
    assert feed.memory.classes == [0, 2]
    assert feed.memory.quota == 6
    assert feed.stored() == {0: [0, 1], 2: [4, 5]}
    held: Tensor = feed.memory.state_dict()["images"]
    assert not {2, 3} & set(held.flatten().tolist())
    feed.memory.remove(7)
    feed(1)
    assert feed.memory.classes == [0, 2, 1]


def test_a_state_is_taken_over() -> None:
    feed = Feed(empty(9))
    feed(3, 1, 1, 3, 3, 3)
    other = Feed(empty(9))
    other.labels = list(feed.labels)
    other.memory.load_state_dict(feed.memory.state_dict())
    other.generator.set_state(feed.generator.get_state())
    for one in (feed, other):
        one(1, 3, 3, 4)
    assert feed.stored() == other.stored()
    with pytest.raises(ValueError, match="9"):
        empty(5).load_state_dict(feed.memory.state_dict())


def test_a_memory_without_slots_is_refused() -> None:
    with pytest.raises(UserError, match="at least 1"):
        empty(0)


def test_a_step_is_not_repeated_while_the_host_still_counts() -> None:
    """Seven slots are six for two classes, but seven for one or seven classes."""
    memory = empty(7)
    feed = Feed(memory)
    feed(0, 0, 0, 1, 1, 1)
    phases = [memory.phase]
    for _ in range(3):
        feed(0)
        phases.append(memory.phase)
    assert phases[0] != phases[1] == phases[2] == phases[3]


def test_images_come_in_batches() -> None:
    feed = Feed(empty(6))
    feed(0, 1, 1, 0, 1)
    batches = list(feed.memory.image_batches(2))
    assert list(map(len, batches)) == [2, 2, 1]
    assert torch.cat(batches).equal(feed.memory.images)
