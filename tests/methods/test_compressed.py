"""A memory of compressed images in place of a method's own."""

import re
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.memory.codec import BlockCodec, by_amplitude, four_bits, size_of
from onpro.methods import Context, method, methods, settings_for
from onpro.methods.compressed import CompressedSettings
from tests.methods.learners import batches, found_in, learner, refused, stepper

SHAPE = (3, 32, 32)


def bytes_of(learned: Any) -> int:
    """What a memory takes, full."""
    memory: Memory = learned.memory
    per_item = [memory._images[0], memory._labels[0]]
    per_item += [stored[0] for stored in memory._fields.values()]
    return memory.capacity * sum(item.numel() * item.element_size() for item in per_item)


@pytest.mark.parametrize(
    "name", ["er", "er-balanced", "gss", "aser", "mir", "scr", "gsa", "onpro", "relay"]
)
@pytest.mark.parametrize("setting", [{"frequencies": 2}, {"frequencies": 8}, {"ratio": 3.0}])
def test_more_images_take_as_many_bytes(name: str, setting: dict[str, Any]) -> None:
    plain = learner(name, memory=50)
    compressed = learner(f"{name}-compressed", memory=50, **setting)
    assert compressed.memory.capacity > 1.5 * plain.memory.capacity
    one = bytes_of(compressed) / compressed.memory.capacity
    assert bytes_of(plain) - one < bytes_of(compressed) <= bytes_of(plain)


def test_the_page_gives_the_sizes_of_memories() -> None:
    page = (Path(__file__).parents[2] / "docs/methods/compressed.md").read_text(encoding="utf-8")
    frequencies, ratios = (
        {
            float(setting): (int(size), int(images.replace(",", "")))
            for setting, size, images in rows
        }
        for rows in (
            re.findall(r"^\| ([\d.]+) \| (\d+) \| ([\d,]+) \| [\d.]+ \|$", table, re.MULTILINE)
            for table in page.split("| `--")[1:]
        )
    )
    assert len(frequencies) > 3
    assert len(ratios) > 3
    tables = {frequency: four_bits(int(frequency)) for frequency in frequencies}
    tables_by_ratio = {ratio: by_amplitude(SHAPE, int(3072 / ratio)) for ratio in ratios}
    for shown, roundings in ((frequencies, tables), (ratios, tables_by_ratio)):
        for setting, (size, images) in shown.items():
            assert size == size_of(SHAPE, *roundings[setting]) + 8
            assert images == 200 * 3080 // size
    default = frequencies[CompressedSettings().frequencies][1]
    assert f"32×32 pixels, {default:,} instead of 200" in page


def test_all_logits_are_counted() -> None:
    """A network's outputs take room too."""
    few, many = (
        learner("derpp-compressed", memory=50, num_classes=classes).memory.capacity
        for classes in (4, 100)
    )
    assert 50 < many < few


def test_replayed_and_predicted_images_look_as_stored() -> None:
    learned = learner("er-compressed", augmentation="none", frequencies=3)
    plain = learner("er", augmentation="none")
    codec = BlockCodec(learned.context.image_shape, *four_bits(3), "cpu")
    (batch,) = batches(1)
    seen = codec.decode(codec.encode(batch.images))
    assert not seen.equal(batch.images)
    stepper(learned).step(batch)
    assert learned.memory.images.equal(seen)
    plain.load_state_dict({**learned.state_dict(), "memory": plain.state_dict()["memory"]})
    assert learned.scores(batch.images).equal(plain.scores(seen))
    again = codec.decode(codec.encode(seen))
    replayed = learned.sample_replay(len(batch)).images
    assert found_in(replayed, plain.normalise(again)).all(), "compressed once more"


@pytest.mark.parametrize("name", sorted(methods()))
def test_methods_with_an_ordinary_memory_can_compress(name: str) -> None:
    reasons = {
        "cope": "whose memory is of a kind of its own",
        "gdumb": "whose memory is of a kind of its own",
        "pass": "which keeps no images",
    }
    if name in reasons:
        with pytest.raises(UserError, match=f"compressed cannot wrap {name}, {reasons[name]}"):
            method(f"{name}-compressed")
    else:
        assert method(f"{name}-compressed")


@pytest.mark.parametrize("frequencies", [0, 16])
def test_blocks_have_15_frequencies(frequencies: int) -> None:
    refused("er-compressed", "frequencies", frequencies=frequencies)


@pytest.mark.parametrize("ratio", [-1.0, 1e-320, 0.5, 100.0])
def test_a_ratio_that_cannot_be_is_refused(ratio: float) -> None:
    refused("er-compressed", "ratio", ratio=ratio)


def test_grey_images_are_refused() -> None:
    context = Context((1, 8, 8), learner("er").context.normalise, num_classes=2)
    with pytest.raises(UserError, match="only images with 3 channels"):
        method("er-compressed")(settings_for("er-compressed", "digits"), context)


def test_images_too_small_to_gain_are_refused() -> None:
    context = Context((3, 5, 5), learner("er").context.normalise, num_classes=2)
    sentence = (
        "5×5 pixels take 75 bytes as they are, compressed 140: set a ratio or fewer frequencies, or"
    )
    with pytest.raises(UserError, match=sentence):
        method("er-compressed")(settings_for("er-compressed", "digits"), context)
