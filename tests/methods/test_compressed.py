"""A memory of compressed images in place of a method's own."""

import re
from pathlib import Path
from typing import Any

import pytest

from onpro.errors import UserError
from onpro.memory import Memory
from onpro.memory.codec import BlockCodec
from onpro.methods import Context, method, methods, settings_for
from onpro.methods.compressed import CompressedSettings
from tests.methods.learners import batches, learner, refused, stepper


def bytes_of(learned: Any) -> int:
    """What a memory takes, full."""
    memory: Memory = learned.memory
    per_item = [memory._images[0], memory._labels[0]]
    per_item += [stored[0] for stored in memory._fields.values()]
    return memory.capacity * sum(item.numel() * item.element_size() for item in per_item)


@pytest.mark.parametrize(
    "name", ["er", "er-balanced", "gss", "aser", "mir", "scr", "gsa", "onpro", "relay"]
)
@pytest.mark.parametrize("frequencies", [2, 8])
def test_more_images_take_as_many_bytes(name: str, frequencies: int) -> None:
    plain = learner(name, memory=50)
    compressed = learner(f"{name}-compressed", memory=50, frequencies=frequencies)
    assert compressed.memory.capacity > 1.5 * plain.memory.capacity
    one = bytes_of(compressed) / compressed.memory.capacity
    assert bytes_of(plain) - one < bytes_of(compressed) <= bytes_of(plain)


def test_the_page_gives_the_sizes_of_memories() -> None:
    page = (Path(__file__).parents[2] / "docs/methods/compressed.md").read_text(encoding="utf-8")
    found = {}
    for row in re.findall(r"^\| (\d+) \| (\d+) \| ([\d,]+) \| [\d.]+ \|$", page, re.MULTILINE):
        frequencies, size, images = (int(number.replace(",", "")) for number in row)
        codec = BlockCodec((3, 32, 32), frequencies, "cpu")
        assert (size, images) == (codec.stored_shape[0] + 8, 200 * 3080 // size)
        found[frequencies] = images
    assert f"32×32 pixels, {found[CompressedSettings().frequencies]:,} instead of 200" in page


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
    codec = BlockCodec(learned.context.image_shape, 3, "cpu")
    (batch,) = batches(1)
    seen = codec.decode(codec.encode(batch.images))
    assert not seen.equal(batch.images)
    stepper(learned).step(batch)
    assert learned.memory.images.equal(seen)
    plain.load_state_dict({**learned.state_dict(), "memory": plain.state_dict()["memory"]})
    assert learned.scores(batch.images).equal(plain.scores(seen))


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
    elif name == "icarl":
        with pytest.raises(UserError, match="compressed cannot wrap icarl, "):
            method("icarl-compressed")
    else:
        assert method(f"{name}-compressed")


@pytest.mark.parametrize("frequencies", [0, 16])
def test_blocks_have_15_frequencies(frequencies: int) -> None:
    refused("er-compressed", "frequencies", frequencies=frequencies)


def test_grey_images_are_refused() -> None:
    context = Context((1, 8, 8), learner("er").context.normalise, num_classes=2)
    with pytest.raises(UserError, match="only images with 3 channels"):
        method("er-compressed")(settings_for("er-compressed", "digits"), context)


def test_images_too_small_to_gain_are_refused() -> None:
    context = Context((3, 5, 5), learner("er").context.normalise, num_classes=2)
    sentence = "5×5 pixels take 75 bytes as they are, compressed 140: set fewer frequencies, or"
    with pytest.raises(UserError, match=sentence):
        method("er-compressed")(settings_for("er-compressed", "digits"), context)
