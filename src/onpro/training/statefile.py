"""Save states in files with a checksum that are loaded without executing anything.

A file is a line that names the format, a line with the SHA-256 of everything after it, and a
safetensors payload. The payload's header holds the state's structure as JSON, in which every
tensor is replaced by its name. The file keeps no memory layout: all tensors are contiguous.
"""

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.files import NEW_FILE, read_plain, replacing

FORMAT = b"onpro state 1\n"

MAX_DEPTH = 100
"""Largest number of nested levels of a state."""


class Frozen(NamedTuple):
    """A copy of a state, ready to be written, that shares no memory with the original."""

    tensors: dict[str, Tensor]
    header: dict[str, str]


def freeze(state: dict[str, Any], *, kind: str) -> Frozen:
    """Return a copy of a state, ready to be written.

    Args:
        state: Nested dicts with string or integer keys, lists, tuples, tensors, numbers, strings,
            booleans, None.
        kind: What the file holds; `load_state` must be given the same.
    """
    tensors: dict[str, Tensor] = {}
    structure = _describe(state, tensors)
    header = {"kind": kind, "structure": json.dumps(structure, allow_nan=False)}
    return Frozen({name: _plain_copy(tensor) for name, tensor in tensors.items()}, header)


def save_state(path: Path, state: Frozen, *, mode: int = NEW_FILE) -> None:
    """Write a state atomically.

    An existing file is replaced once the new one is safe on the disk.

    Args:
        path: The file.
        state: What to write.
        mode: Permissions of a new file, before the umask.
    """
    from safetensors.torch import save

    payload = save(state.tensors, state.header)
    with replacing(path, mode=mode) as file:
        file.write(FORMAT + hashlib.sha256(payload).hexdigest().encode() + b"\n")
        file.write(payload)


def load_state(path: Path, *, kind: str) -> dict[str, Any]:
    """Load a state, its tensors on the CPU; raise UserError if the file is damaged."""
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
    try:
        said, structure = _header(payload)
        if said == kind:
            return _state(structure, payload)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: it does not hold a state ({error}).") from error
    raise UserError(f"{path} holds a {said}, not a {kind}.")


def _header(payload: bytes) -> tuple[str, Any]:
    """Return the kind and the structure of the state in a safetensors payload.

    The payload starts with the size of its header, then the header as JSON.
    """
    size = int.from_bytes(payload[:8], "little")
    header = json.loads(payload[8 : 8 + size])
    said = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(said, dict) or not all(isinstance(value, str) for value in said.values()):
        raise ValueError("it does not say what it is")
    if said.keys() != {"kind", "structure"} or not said["kind"].isidentifier():
        raise ValueError("it does not say what it is")
    return said["kind"], json.loads(said["structure"], parse_constant=_refuse)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _state(structure: Any, payload: bytes) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(payload)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that torch does not have
        raise ValueError(f"its tensors cannot be read: {error}") from error
    state = _rebuild(structure, tensors)
    if not isinstance(state, dict) or tensors:
        raise ValueError("its structure and its tensors differ")
    return state


def _describe(value: Any, tensors: dict[str, Tensor], level: int = 0) -> Any:
    """Return the value for JSON; each tensor is added to `tensors` and replaced by its name."""
    if level > MAX_DEPTH:
        raise ValueError(f"a state can be {MAX_DEPTH} levels deep, not more")
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value
        return {"tensor": [name, None]}  # earlier versions had the strides here
    if isinstance(value, dict):
        return {"dict": [[key, _describe(item, tensors, level + 1)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_describe(item, tensors, level + 1) for item in value]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a state cannot hold a {type(value).__name__}")


def _rebuild(described: Any, tensors: dict[str, Tensor], level: int = 0) -> Any:
    """Return the value that was described; remove its tensors from `tensors`."""
    if level > MAX_DEPTH:
        raise ValueError("its structure is too deep")
    if described is None or isinstance(described, (bool, int, str)):
        return described
    if isinstance(described, float) and math.isfinite(described):
        return described
    if not isinstance(described, dict) or len(described) != 1:
        raise ValueError("its structure is not one of a state")
    ((kind, content),) = described.items()
    if kind not in ("tensor", "dict", "list", "tuple") or not isinstance(content, list):
        raise ValueError("its structure is not one of a state")
    if kind == "tensor":
        name = content[0] if content else None
        if not isinstance(name, str) or name not in tensors:
            raise ValueError("its structure names a tensor that is not there")
        return tensors.pop(name).clone()  # in aligned memory of its own
    if kind == "dict":
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("its structure is not one of a state")
        keys = [key for key, _ in content]
        if any(isinstance(key, (list, dict)) for key in keys) or len(set(keys)) < len(keys):
            raise ValueError("its structure is not one of a state")
        return {key: _rebuild(item, tensors, level + 1) for key, item in content}
    items = [_rebuild(item, tensors, level + 1) for item in content]
    return tuple(items) if kind == "tuple" else items


def _plain_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy on the CPU."""
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
