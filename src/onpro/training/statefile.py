"""States on disk: one file, checked to the last byte, nothing in it is ever executed.

A file is a line that names the format, a line with the SHA-256 of everything after it, and a
safetensors payload. The payload's header holds the state's structure as JSON, in which every
tensor is replaced by its name and, where it is not laid out row by row, its strides: a fused
optimizer walks its averages and the weights side by side, so their layouts must stay equal.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.files import NEW_FILE, read_plain, replacing

FORMAT = b"onpro state 1\n"


class Frozen(NamedTuple):
    """A state as it was at one moment: it shares no memory with what goes on changing."""

    tensors: dict[str, Tensor]
    header: dict[str, str]


def freeze(state: dict[str, Any], *, kind: str) -> Frozen:
    """A copy of a state, ready to be written.

    Args:
        state: nested dicts with string or integer keys, lists, tuples, tensors, numbers, strings,
            booleans, None.
        kind: what the file holds, asked for again when it is loaded.
    """
    tensors: dict[str, Tensor] = {}
    structure = _describe(state, tensors)
    header = {"kind": kind, "structure": json.dumps(structure, allow_nan=False)}
    return Frozen({name: _plain_copy(tensor) for name, tensor in tensors.items()}, header)


def save_state(path: Path, state: Frozen, *, mode: int = NEW_FILE) -> None:
    """Write a state so that the file is there completely or not at all, even after a crash.

    An older file of that name is replaced only once the new one is safe on the disk.

    Args:
        path: the file.
        state: what to write.
        mode: of a file that does not exist yet, before the umask.
    """
    from safetensors.torch import save

    payload = save(state.tensors, state.header)
    with replacing(path, mode=mode) as file:
        file.write(FORMAT + hashlib.sha256(payload).hexdigest().encode() + b"\n")
        file.write(payload)


def load_state(path: Path, *, kind: str) -> dict[str, Any]:
    """Read a state back, its tensors on the CPU; a sentence where the file is not as it was."""
    from safetensors.torch import load

    try:
        content = read_plain(path)
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not content.startswith(b"onpro state "):
        raise UserError(f"{path} is not a file that onpro saved.")
    name, _, rest = content.partition(b"\n")
    if name + b"\n" != FORMAT and re.fullmatch(rb"onpro state \d+", name):
        raise UserError(f"{path} was saved by a newer version of onpro: install that to read it.")
    checksum, _, payload = rest.partition(b"\n")
    if name + b"\n" != FORMAT or checksum != hashlib.sha256(payload).hexdigest().encode():
        raise UserError(f"{path} is damaged: its content does not match its checksum.")
    described = _header(payload)
    if described["kind"] != kind:
        raise UserError(f"{path} holds a {described['kind']}, not a {kind}.")
    state: dict[str, Any] = _rebuild(json.loads(described["structure"]), load(payload))
    return state


def _header(payload: bytes) -> dict[str, str]:
    """What was said of a safetensors payload: its size comes first, then JSON of that size."""
    size = int.from_bytes(payload[:8], "little")
    said: dict[str, str] = json.loads(payload[8 : 8 + size])["__metadata__"]
    return said


def _describe(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The value with each tensor replaced by a name, as JSON can hold it."""
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": [name, _strides(value)]}
    if isinstance(value, dict):
        return {"dict": [[key, _describe(item, tensors)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_describe(item, tensors) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a state cannot hold a {type(value).__name__}")


def _rebuild(described: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(described, dict):
        return described
    ((kind, content),) = described.items()
    if kind == "tensor":
        name, strides = content
        return _laid_out(tensors[name], strides)
    if kind == "dict":
        return {key: _rebuild(item, tensors) for key, item in content}
    items = [_rebuild(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


def _plain_copy(tensor: Tensor) -> Tensor:
    """On the CPU, row by row, sharing its memory with no other tensor of the state."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _strides(tensor: Tensor) -> list[int] | None:
    """How a copy of the tensor lies in memory; None: row by row."""
    strides = torch.empty_like(tensor, device="meta").stride()
    plain = torch.empty(tensor.shape, device="meta").stride()
    return None if strides == plain else list(strides)


def _laid_out(tensor: Tensor, strides: list[int] | None) -> Tensor:
    """A copy that lies as the saved tensor did, in memory of its own and so aligned as it was."""
    if strides is None:
        return tensor.clone()
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)
