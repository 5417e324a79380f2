"""Compressed images: what is kept of a block, and what a memory does with it."""

import math
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis.strategies import integers, lists, randoms
from numpy.typing import NDArray
from scipy.fft import dctn, idctn
from torch import Tensor
from torch.nn.functional import avg_pool2d
from torch.testing import assert_close

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.memory import codec as codec_module
from onpro.memory.codec import BlockCodec, Table, by_amplitude, four_bits, size_of
from onpro.training.stepper import equal

Plane = NDArray[np.float64]


def photographs(count: int, height: int, width: int, seed: int = 0) -> Tensor:
    """Smooth images: bright and dark waves with a tinge of colour."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    direction = (torch.rand((count, 4, 2, 1, 1), generator=generator) - 0.5) / 2
    phase = 2 * math.pi * torch.rand((count, 4, 1, 1), generator=generator)
    waves = torch.sin(direction[:, :, 0] * rows + direction[:, :, 1] * columns + phase)
    return (128 + 80 * waves[:, :1] + 20 * waves[:, 1:]).round().to(torch.uint8)


def slowly(image: Tensor, luma_table: Table, colour_table: Table) -> Tensor:
    """What is left of an image whose sides are multiples of 16, block by block."""
    red, green, blue = image.double().numpy()
    luma = 0.299 * red + 0.587 * green + 0.114 * blue
    blueness, redness = (blue - luma) / 1.772, (red - luma) / 1.402
    luma = kept(luma - 128, luma_table) + 128
    blueness, redness = (
        enlarged(kept(halved(plane), colour_table)) for plane in (blueness, redness)
    )
    red, blue = luma + 1.402 * redness, luma + 1.772 * blueness
    green = (luma - 0.299 * red - 0.114 * blue) / 0.587
    return torch.from_numpy(np.stack([red, green, blue]).round().clip(0, 255))


def kept(plane: Plane, table: Table) -> Plane:
    """The frequencies of blocks, rounded."""
    result = np.zeros_like(plane)
    for top in range(0, plane.shape[0], 8):
        for left in range(0, plane.shape[1], 8):
            block = np.s_[top : top + 8, left : left + 8]
            waves = dctn(plane[block], norm="ortho")
            for row in range(8):
                for column in range(8):
                    if row + column < len(table):
                        bits, step = table[row + column]
                        most = 2 ** (bits - 1) - 1
                        multiple = np.clip(np.round(waves[row, column] / step), -most, most)
                        waves[row, column] = step * multiple
                    else:
                        waves[row, column] = 0
            result[block] = idctn(waves, norm="ortho")
    return result


def halved(plane: Plane) -> Plane:
    pairs: Plane = plane.reshape(plane.shape[0] // 2, 2, -1, 2)
    return np.asarray(pairs.mean(axis=(1, 3)))


def enlarged(plane: Plane) -> Plane:
    """Twice as large, on slopes between neighbours; two new pixels have the mean of the old one."""
    for axis in (0, 1):
        plane = np.moveaxis(plane, axis, 0)
        around = np.concatenate([plane[:1], plane, plane[-1:]])
        rise = (around[2:] - around[:-2]) / 8
        both = np.stack([plane - rise, plane + rise], axis=1)
        plane = np.moveaxis(both.reshape(-1, plane.shape[1]), 0, axis)
    return plane


def restored(codec: BlockCodec, images: Tensor) -> Tensor:
    return codec.decode(codec.encode(images))


@pytest.mark.parametrize(
    "tables",
    [*map(four_bits, (1, 2, 8, 15)), *(by_amplitude((3, 32, 48), size) for size in (120, 900))],
    ids=["1", "2", "8", "15", "120 bytes", "900 bytes"],
)
def test_what_is_kept_is_that_of_a_slow_reference(tables: tuple[Table, Table]) -> None:
    images = photographs(4, 32, 48)
    fast = restored(BlockCodec((3, 32, 48), *tables, "cpu"), images).double()
    slow = torch.stack([slowly(image, *tables) for image in images])
    differ = (fast - slow).abs()
    # A float32 may fall to the other side of .5, of a pixel or, rarely, of a wave of a block.
    assert (differ > 1).double().mean() < 0.02
    assert (differ > 0).double().mean() < 0.04


@pytest.mark.parametrize("size", [60, 100, 340, 560, 900])
def test_bits_by_amplitude_fill_the_bytes(size: int) -> None:
    tables = by_amplitude((3, 32, 32), size)
    assert 0.7 * size < size_of((3, 32, 32), *tables) <= size
    for table in tables:
        assert [bits for bits, _ in table] == sorted((bits for bits, _ in table), reverse=True)


def test_bits_by_amplitude_show_more_than_four_for_each_frequency() -> None:
    images = photographs(20, 32, 32)
    four = four_bits(12)
    size = size_of((3, 32, 32), *four)
    errors = [
        (restored(BlockCodec((3, 32, 32), *tables, "cpu"), images).double() - images).square()
        for tables in (by_amplitude((3, 32, 32), size), four)
    ]
    assert errors[0].mean() < errors[1].mean() / 2


def test_too_few_bytes_are_refused() -> None:
    with pytest.raises(UserError, match="32×32 pixels take at least 24 bytes, not 23: give a"):
        by_amplitude((3, 32, 32), 23)


@pytest.mark.parametrize("tables", [four_bits(12), by_amplitude((3, 32, 32), 560)])
def test_compressing_again_changes_little(tables: tuple[Table, Table]) -> None:
    """Replayed images are compressed again before the network sees them."""
    codec, images = BlockCodec((3, 32, 32), *tables, "cpu"), photographs(20, 32, 32)
    once = restored(codec, images)
    lost = (once.double() - images).square().mean()
    assert (restored(codec, once).double() - once).square().mean() < lost / 10


@pytest.mark.parametrize("shape", [(2, 2), (6, 4)])
def test_enlarged_planes_keep_their_means(shape: tuple[int, int]) -> None:
    planes = torch.rand((3, 2, *shape), generator=torch.Generator().manual_seed(0))
    assert_close(avg_pool2d(codec_module.enlarged(planes), 2), planes)


@given(lists(integers(1, 8), min_size=1, max_size=40), randoms(use_true_random=False))
def test_numbers_of_any_bits_can_be_packed(bits: list[int], random: Random) -> None:
    numbers = torch.tensor([[random.randrange(2**width) for width in bits] for _ in range(3)])
    packing = codec_module._Bits(bits, "cpu")
    packed = packing.pack(numbers)
    assert packed.dtype == torch.uint8
    assert packed.shape == (3, math.ceil(sum(bits) / 8))
    assert packing.unpack(packed).equal(numbers.float())


@pytest.mark.parametrize(("frequencies", "size"), [(1, 24), (6, 204), (8, 340), (15, 668)])
def test_images_of_32_by_32_pixels_take_few_bytes(frequencies: int, size: int) -> None:
    codec = BlockCodec((3, 32, 32), *four_bits(frequencies), "cpu")
    stored = codec.encode(photographs(2, 32, 32))
    assert stored.dtype == torch.uint8
    assert stored.shape == (2, size)
    assert codec.stored_shape == (size,)


def test_more_frequencies_show_more() -> None:
    images = photographs(20, 32, 32)
    errors = [
        (restored(BlockCodec((3, 32, 32), *four_bits(count), "cpu"), images).double() - images)
        .square()
        .mean()
        for count in (1, 3, 6, 9, 12)
    ]
    assert errors == sorted(errors, reverse=True)
    assert 10 * math.log10(255**2 / errors[2]) > 30, "decibels"


@pytest.mark.parametrize("shape", [(32, 32), (1, 1), (5, 7), (16, 17), (84, 84)])
def test_images_may_have_any_size(shape: tuple[int, int]) -> None:
    codec = BlockCodec((3, *shape), *four_bits(15), "cpu")
    images = torch.full((3, 3, *shape), 200, dtype=torch.uint8)
    images[:, 0] = 40
    again = restored(codec, images)
    assert again.shape == images.shape
    assert again.dtype == torch.uint8
    assert (again.int() - images.int()).abs().max() <= 2, "one colour stays as it is"
    assert restored(codec, images[:0]).shape == (0, 3, *shape)


@pytest.mark.parametrize("value", [0, 255])
def test_black_and_white_stay_black_and_white(value: int) -> None:
    images = torch.full((1, 3, 16, 16), value, dtype=torch.uint8)
    again = restored(BlockCodec((3, 16, 16), *four_bits(4), "cpu"), images)
    assert (again.int() - value).abs().max() <= 1


def test_an_image_does_not_depend_on_the_others_of_its_batch() -> None:
    codec, images = BlockCodec((3, 16, 16), *four_bits(8), "cpu"), photographs(5, 16, 16)
    apart = torch.cat([restored(codec, image[None]) for image in images])
    differ = (restored(codec, images).int() - apart.int()).abs()
    assert (differ > 0).double().mean() < 0.02, "but for rounding"


def test_other_images_than_coloured_ones_are_refused() -> None:
    with pytest.raises(UserError, match="3 channels can be compressed, not with 1"):
        BlockCodec((1, 8, 8), *four_bits(8), "cpu")


def compressing(capacity: int, **changes: Any) -> Memory:
    codec = BlockCodec((3, 16, 16), *four_bits(8), "cpu")
    return Memory(capacity, (3, 16, 16), device="cpu", codec=codec, **changes)


def test_a_memory_returns_what_it_has_compressed() -> None:
    memory, images = compressing(6), photographs(4, 16, 16)
    memory.write(torch.arange(4), images, torch.arange(4))
    memory.advance(4)
    expected = restored(BlockCodec((3, 16, 16), *four_bits(8), "cpu"), images)
    assert memory.images.equal(expected)
    assert memory.take(torch.tensor([2, 0])).images.equal(expected[[2, 0]])


@pytest.mark.parametrize(
    ("side", "parts"), [(32, [3]), (1024, [3]), (1448, [2, 1]), (2049, [1, 1, 1])]
)
def test_large_images_are_decoded_one_after_the_other(side: int, parts: list[int]) -> None:
    memory = Memory(3, (3, side, side), device="cpu", codec=(codec := Counting(side)))
    assert memory.take(torch.zeros(3, dtype=torch.int64)).images.shape == (3, 3, side, side)
    assert codec.decoded == parts
    assert memory.images.shape == (0, 3, side, side)


class Counting(BlockCodec):
    """Stores a byte of each image, and notes how many are decoded together."""

    stored_shape = (1,)

    def __init__(self, side: int) -> None:
        self.side, self.decoded = side, list[int]()

    def encode(self, images: Tensor) -> Tensor:
        return images[:, 0, 0, :1]

    def decode(self, stored: Tensor) -> Tensor:
        self.decoded.append(len(stored))
        return stored[:, :, None, None].expand(-1, 3, self.side, self.side)


@pytest.mark.parametrize(("stored", "sizes"), [(0, [0]), (4, [4]), (5, [3, 2]), (9, [3, 3, 3])])
def test_images_are_decoded_batch_by_batch(stored: int, sizes: list[int]) -> None:
    memory, images = compressing(9), photographs(stored, 16, 16)
    memory.write(torch.arange(stored), images, torch.zeros(stored, dtype=torch.int64))
    memory.advance(stored)
    batches = list(memory.image_batches(4))
    assert list(map(len, batches)) == sizes
    assert torch.cat(batches).equal(memory.images)


def test_a_compressed_memory_is_saved_as_it_is_stored() -> None:
    memory = compressing(6)
    memory.write(torch.arange(4), photographs(4, 16, 16), torch.arange(4))
    memory.advance(4)
    memory.remove(1)
    state = memory.state_dict()
    assert state["images"].shape == (3, 85)
    other = compressing(6)
    other.load_state_dict(state)
    assert other.images.equal(memory.images)
    assert other.labels.tolist() == memory.labels.tolist()


def test_images_of_another_codec_are_refused() -> None:
    memory = compressing(6)
    with pytest.raises(ValueError, match=r"images of shape \(3, 16, 16\), .* of shape \(85,\)"):
        memory.load_state_dict(Memory(6, (3, 16, 16), device="cpu").state_dict())


def test_a_memory_shrinks_to_fewer_free_slots() -> None:
    memory, state = filled(6), filled(3).state_dict()
    for capacity in (6, 7, -1):
        memory.shrink(capacity)
        assert (memory.capacity, memory.fill) == (6, 6)
    memory.shrink(3)
    assert memory.replayable_fills == range(4)
    assert (memory.capacity, memory.fill, memory.seen, memory.overflowed) == (3, 0, 0, False)
    memory.load_state_dict(state)
    assert equal(memory.state_dict(), state)


def filled(capacity: int) -> Memory:
    """A memory whose slots all hold an image and a score."""
    memory = compressing(capacity, extra={"score": ((), torch.float32)})
    slots = torch.arange(capacity)
    memory.write(slots, photographs(capacity, 16, 16), slots, score=torch.ones(capacity))
    memory.advance(capacity)
    return memory
