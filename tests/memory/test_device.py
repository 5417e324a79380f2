"""On a CUDA device no part of the memory may wait for the device."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from onpro.memory import Memory, balanced, reservoir, retrieval
from onpro.memory.codec import BlockCodec, Table, by_amplitude, four_bits
from onpro.memory.memory import FieldSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


@pytest.fixture
def _no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("_no_waiting")
@pytest.mark.parametrize(
    ("update", "fields"),
    [
        (reservoir.reservoir_batch, {}),
        (reservoir.reservoir_sequential, {}),
        (balanced.balanced, {"key": balanced.KEY}),
    ],
)
def test_nothing_waits_for_the_device(
    update: Callable[..., Tensor], fields: dict[str, FieldSpec]
) -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    extra: dict[str, FieldSpec] = {"logits": ((4,), torch.float32), **fields}
    memory = Memory(50, (3, 8, 8), device="cuda", extra=extra)
    for _ in range(8):
        images = torch.zeros(10, 3, 8, 8, dtype=torch.uint8, device="cuda")
        labels = torch.randint(4, (10,), device="cuda", generator=generator)
        update(memory, images, labels, generator, logits=torch.zeros(10, 4, device="cuda"))
        old = memory.labels < 2
        memory.take(retrieval.uniform(memory, 16, generator))
        memory.take(retrieval.where(memory, old, 16, generator)[0])
        memory.take(retrieval.per_class(memory, 2, 4, generator, exclude=old)[0])
        memory.take(retrieval.of_classes(memory, labels, generator))
        retrieval.class_counts(memory, 4)


def test_a_batch_beyond_the_capacity_lands_on_the_device() -> None:
    generator = torch.Generator("cuda").manual_seed(0)
    memory = Memory(50, (1, 1, 1), device="cuda")
    labels = torch.arange(200, device="cuda")
    images = labels.to(torch.uint8).view(-1, 1, 1, 1)
    slots = reservoir.reservoir_batch(memory, images, labels, generator)
    stored = slots < memory.bin
    assert torch.equal(memory.labels[slots[stored]], labels[stored])
    assert torch.equal(memory.images.view(-1).long(), memory.labels)


@pytest.mark.parametrize("tables", [four_bits(8), by_amplitude((3, 32, 32), 400)])
def test_images_are_compressed_as_on_a_cpu(tables: tuple[Table, Table]) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (16, 3, 32, 32), generator=generator, dtype=torch.uint8)
    on_cpu, on_gpu = (BlockCodec((3, 32, 32), *tables, device) for device in ("cpu", "cuda"))
    stored = on_cpu.encode(images)
    differ = on_gpu.encode(images.cuda()).cpu() != stored
    assert differ.double().mean() < 0.01, "float32 may fall to the other side of .5"
    shown = on_gpu.decode(stored.cuda()).cpu().int()
    assert (shown - on_cpu.decode(stored).int()).abs().max() <= 1
