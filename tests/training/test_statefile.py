"""A state comes back from its file exactly, or a sentence says why it does not."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.nn.optimizers import lay_out_like_parameters
from onpro.training.statefile import freeze, load_state, save_state

KIND = "checkpoint"
STATE: dict[str, Any] = {
    "numbers": [1, -2.5, 1e-300, 2**60, True, None],
    "words": ("é", "", "two\nlines"),
    "by step": {0: {"average": torch.arange(6.0).view(2, 3)}, 1: {}},
    "half": torch.tensor([1.5, -0.0], dtype=torch.bfloat16),
    "bytes": torch.arange(256, dtype=torch.uint8),
    "flags": torch.tensor([True, False]),
    "nothing": torch.zeros(0, 3, dtype=torch.int64),
    "scalar": torch.tensor(2.0**-140),
    "special": torch.tensor([torch.nan, torch.inf, -torch.inf]),
}


def same(a: Any, b: Any) -> bool:
    """Whether two states are equal in values, types and layout, bit for bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        bits = [x.contiguous().view(-1).view(torch.uint8) for x in (a, b)]
        return (a.dtype, a.shape) == (b.dtype, b.shape) and torch.equal(*bits)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def there_and_back(tmp_path: Path, state: dict[str, Any]) -> dict[str, Any]:
    save_state(tmp_path / "state", freeze(state, kind=KIND))
    return load_state(tmp_path / "state", kind=KIND)


def test_a_state_comes_back_exactly(tmp_path: Path) -> None:
    back = there_and_back(tmp_path, STATE)
    assert same(back, STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
FINITE = PLAIN.filter(lambda value: value not in (float("inf"), float("-inf")))


@given(
    st.dictionaries(
        st.text() | st.integers(),
        st.recursive(FINITE, lambda s: st.lists(s) | st.tuples(s, s) | st.dictionaries(FINITE, s)),
    )
)
@settings(max_examples=15, deadline=None)
def test_any_plain_values_come_back(
    tmp_path_factory: pytest.TempPathFactory, state: dict[str, Any]
) -> None:
    assert same(there_and_back(tmp_path_factory.mktemp("plain"), state), state)


def test_a_tensor_of_any_layout_comes_back_contiguous(tmp_path: Path) -> None:
    values = torch.arange(120.0).view(2, 3, 4, 5)
    last = values.to(memory_format=torch.channels_last)
    state = {"plain": values, "last": last, "turned": values.permute(1, 0, 3, 2)}
    back = there_and_back(tmp_path, state)
    assert same(back, state)
    assert all(tensor.is_contiguous() for tensor in back.values())


def test_a_file_that_holds_strides_is_read(tmp_path: Path) -> None:
    """As earlier versions wrote it."""
    values = torch.arange(120.0).view(2, 3, 4, 5)
    frozen = freeze({"values": values}, kind=KIND)
    structure = frozen.header["structure"].replace("null", "[60, 1, 15, 3]")
    assert structure != frozen.header["structure"]
    save_state(tmp_path / "state", frozen._replace(header={"kind": KIND, "structure": structure}))
    assert torch.equal(load_state(tmp_path / "state", kind=KIND)["values"], values)


def test_a_fused_optimizer_of_a_channels_last_network_goes_on_exactly(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 6, 6, generator=generator).to(memory_format=torch.channels_last)
    weights = torch.randn(8, 3, 3, 3, generator=generator).to(memory_format=torch.channels_last)

    def new() -> tuple[nn.Parameter, torch.optim.Adam]:
        weight = nn.Parameter(weights.clone())
        return weight, torch.optim.Adam([weight], fused=True)

    def step(weight: nn.Parameter, optimizer: torch.optim.Adam) -> None:
        optimizer.zero_grad()
        nn.functional.conv2d(images, weight).square().sum().backward()
        optimizer.step()

    weight, optimizer = new()
    step(weight, optimizer)
    saved = {"weight": weight, "optimizer": optimizer.state_dict()}
    back = there_and_back(tmp_path, saved)
    resumed, its_optimizer = new()
    resumed.data.copy_(back["weight"])
    its_optimizer.load_state_dict(back["optimizer"])
    lay_out_like_parameters(its_optimizer)
    for _ in range(3):
        step(weight, optimizer)
        step(resumed, its_optimizer)
    assert torch.equal(weight, resumed)


def test_tensors_may_share_memory_and_come_back_apart(tmp_path: Path) -> None:
    whole = torch.arange(12)
    back = there_and_back(tmp_path, {"whole": whole, "again": whole, "part": whole[::2]})
    assert torch.equal(back["again"], whole)
    assert torch.equal(back["part"], whole[::2])
    back["whole"].zero_()
    assert torch.equal(back["again"], whole)


def test_what_a_state_cannot_hold_leaves_the_old_file(tmp_path: Path) -> None:
    save_state(tmp_path / "state", freeze(STATE, kind=KIND))
    with pytest.raises(TypeError, match="cannot hold a set"):
        save_state(tmp_path / "state", freeze({"seen": {1, 2}}, kind=KIND))
    assert same(load_state(tmp_path / "state", kind=KIND), STATE)


def test_a_disk_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_state(tmp_path / "state", freeze(STATE, kind=KIND))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_state(tmp_path / "state", freeze({}, kind=KIND))
    assert same(load_state(tmp_path / "state", kind=KIND), STATE)
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_every_byte_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_state(path, freeze({"step": 3, "weights": torch.arange(5.0)}, kind=KIND))
    whole = path.read_bytes()
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << position % 8
        path.write_bytes(flipped)
        with pytest.raises(UserError, match=r"damaged|not a file that|newer version"):
            load_state(path, kind=KIND)


def test_every_missing_or_added_byte_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_state(path, freeze({"step": 3, "weights": torch.arange(5.0)}, kind=KIND))
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"damaged|not a file that"):
            load_state(path, kind=KIND)
    path.write_bytes(whole + b"\0")
    with pytest.raises(UserError, match="damaged"):
        load_state(path, kind=KIND)


def test_what_is_no_state_is_told_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with pytest.raises(UserError, match=r"there is no file .*state"):
        load_state(path, kind=KIND)
    with pytest.raises(UserError, match=r"cannot be read: not a regular file"):
        load_state(tmp_path, kind=KIND)
    path.write_bytes(b"PK\x03\x04 something else")
    with pytest.raises(UserError, match="is not a file that onpro saved"):
        load_state(path, kind=KIND)
    path.write_bytes(b"onpro state 7\n")
    with pytest.raises(UserError, match="saved by a newer version"):
        load_state(path, kind=KIND)
    save_state(path, freeze({}, kind="classifier"))
    with pytest.raises(UserError, match="holds a classifier, not a checkpoint"):
        load_state(path, kind=KIND)
