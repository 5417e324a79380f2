import pytest
import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.memory.reservoir import reservoir_batch

SHAPE = (3, 2, 2)


def random_images(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(256, (count, *SHAPE), dtype=torch.uint8, generator=generator)


def with_logits(capacity: int, stored: int, classes: int = 4) -> Memory:
    extra = {"logits": ((classes,), torch.float32), "score": ((), torch.float64)}
    memory = Memory(capacity, SHAPE, device="cpu", extra=extra)
    slots = torch.arange(stored)
    memory.write(
        slots,
        random_images(stored),
        slots % classes,
        logits=slots[:, None] + torch.arange(classes) / 10,
        score=slots / 7,
    )
    memory.advance(stored)
    return memory


def assert_same(one: Memory, other: Memory) -> None:
    assert (len(one), one.seen, one.capacity) == (len(other), other.seen, other.capacity)
    assert torch.equal(one.images, other.images)
    assert torch.equal(one.labels, other.labels)
    assert one.fields.keys() == other.fields.keys()
    for name in one.fields:
        assert torch.equal(one.fields[name], other.fields[name])


def test_a_new_memory_is_empty() -> None:
    memory = Memory(5, SHAPE, device="cpu")
    assert len(memory) == memory.fill == memory.seen == 0
    assert memory.free == 5
    assert memory.images.shape == (0, *SHAPE)
    assert memory.labels.dtype == torch.int64
    assert len(memory.take(torch.arange(0)).labels) == 0


def test_a_memory_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="cannot hold -3 images"):
        Memory(-3, SHAPE, device="cpu")


def test_a_memory_without_room_keeps_nothing() -> None:
    memory = Memory(0, SHAPE, device="cpu")
    images, labels = torch.ones((5, *SHAPE), dtype=torch.uint8), torch.arange(5)
    slots = reservoir_batch(memory, images, labels, torch.Generator())
    assert (slots == memory.bin).all()
    assert (len(memory), memory.seen) == (0, 5)
    assert memory.images.shape == (0, *SHAPE)
    memory.remove(0)
    restored = Memory(0, SHAPE, device="cpu")
    restored.load_state_dict(memory.state_dict())
    assert restored.seen == 5


def test_a_memory_overflows_once_more_has_arrived_than_fits() -> None:
    memory = Memory(6, SHAPE, device="cpu")
    for arrived, overflowed in ((6, False), (1, True), (50, True)):
        memory.advance(arrived)
        assert memory.overflowed is overflowed
    restored = Memory(6, SHAPE, device="cpu")
    restored.load_state_dict(memory.state_dict())
    assert (restored.overflowed, restored.seen) == (True, 57)


def test_items_are_taken_as_they_were_written() -> None:
    memory = with_logits(capacity=6, stored=5)
    replay = memory.take(torch.tensor([4, 0, 4]))
    assert torch.equal(replay.images, random_images(5)[[4, 0, 4]])
    assert replay.labels.tolist() == [0, 0, 0]
    assert replay.fields["score"].tolist() == pytest.approx([4 / 7, 0, 4 / 7])
    torch.testing.assert_close(replay.fields["logits"][0], torch.tensor([4.0, 4.1, 4.2, 4.3]))


def test_what_was_taken_does_not_change_with_the_memory() -> None:
    memory = with_logits(capacity=3, stored=3)
    replay = memory.take(torch.arange(3))
    before = replay.images.clone()
    memory.write(
        torch.arange(3),
        255 - before,
        torch.full((3,), 9),
        logits=torch.zeros(3, 4),
        score=torch.zeros(3),
    )
    assert torch.equal(replay.images, before)
    assert 9 not in replay.labels


def test_the_bin_takes_any_number_of_items_and_shows_none() -> None:
    memory = Memory(2, SHAPE, device="cpu")
    images = random_images(5)
    memory.write(torch.tensor([2, 1, 2, 0, 2]), images, torch.arange(5))
    memory.advance(5)
    assert memory.labels.tolist() == [3, 1]
    assert torch.equal(memory.images, images[[3, 1]])
    assert memory.state_dict()["images"].shape == (2, *SHAPE)


def test_a_written_field_loses_its_gradient() -> None:
    memory = Memory(2, SHAPE, device="cpu", extra={"logits": ((3,), torch.float32)})
    logits = torch.ones(2, 3, dtype=torch.bfloat16, requires_grad=True)
    memory.write(torch.arange(2), random_images(2), torch.arange(2), logits=logits)
    memory.advance(2)
    assert not memory.fields["logits"].requires_grad
    assert memory.fields["logits"].dtype == torch.float32


def test_wrong_pixels_or_fields_are_refused() -> None:
    memory = with_logits(capacity=3, stored=0)
    slots, images = torch.arange(2), random_images(2)
    with pytest.raises(ValueError, match="uint8"):
        memory.write(slots, images.float(), slots, logits=torch.zeros(2, 4), score=torch.zeros(2))
    with pytest.raises(ValueError, match="logits"):
        memory.write(slots, images, slots, logits=torch.zeros(2, 4))


def test_pixels_may_be_of_another_type() -> None:
    memory = Memory(2, SHAPE, device="cpu", dtype=torch.float16)
    memory.write(torch.arange(2), random_images(2).half() / 255, torch.arange(2))
    memory.advance(2)
    assert memory.images.dtype == torch.float16


def test_a_field_grows_and_keeps_what_it_had() -> None:
    memory = with_logits(capacity=4, stored=3, classes=2)
    before = memory.fields["logits"].clone()
    memory.grow_field("logits", 5)
    after = memory.fields["logits"]
    assert torch.equal(after[:, :2], before)
    assert (after[:, 2:] == 0).all()
    memory.write(
        torch.tensor([3]),
        random_images(1),
        torch.tensor([4]),
        logits=torch.arange(5.0)[None],
        score=torch.zeros(1),
    )
    memory.advance(1)
    assert memory.fields["logits"][3].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("name", "width"), [("logits", 1), ("score", 3)])
def test_a_field_neither_shrinks_nor_gains_a_dimension(name: str, width: int) -> None:
    with pytest.raises(ValueError, match=name):
        with_logits(capacity=4, stored=3, classes=2).grow_field(name, width)


@pytest.mark.parametrize("stored", [0, 3, 5])
def test_a_state_restores_the_memory(stored: int) -> None:
    memory = with_logits(capacity=5, stored=stored)
    memory.count(40)
    restored = with_logits(capacity=5, stored=4)
    restored.load_state_dict(memory.state_dict())
    assert_same(restored, memory)


def test_a_state_is_a_copy() -> None:
    memory = with_logits(capacity=4, stored=4)
    state = memory.state_dict()
    memory.images.zero_()
    memory.fields["logits"].zero_()
    assert torch.equal(state["images"], random_images(4))
    assert state["fields"]["logits"].any()


def test_a_state_with_grown_fields_is_restored() -> None:
    memory = with_logits(capacity=4, stored=3, classes=2)
    memory.grow_field("logits", 6)
    restored = with_logits(capacity=4, stored=0, classes=2)
    restored.load_state_dict(memory.state_dict())
    assert_same(restored, memory)


@pytest.mark.parametrize(
    ("other", "complaint"),
    [
        (Memory(3, SHAPE, device="cpu"), "3 images, not of 4"),
        (Memory(4, (3, 5, 5), device="cpu"), "shape"),
        (Memory(4, SHAPE, device="cpu", dtype=torch.float32), "float32"),
        (Memory(4, SHAPE, device="cpu", extra={"score": ((), torch.float32)}), "fields"),
    ],
)
def test_the_state_of_another_kind_of_memory_is_refused(other: Memory, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Memory(4, SHAPE, device="cpu").load_state_dict(other.state_dict())


def test_a_field_of_another_kind_is_refused() -> None:
    scalar = Memory(4, SHAPE, device="cpu", extra={"score": ((), torch.float32)})
    vector = Memory(4, SHAPE, device="cpu", extra={"score": ((3,), torch.float32)})
    with pytest.raises(ValueError, match="score"):
        scalar.load_state_dict(vector.state_dict())
