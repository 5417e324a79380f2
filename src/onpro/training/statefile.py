"""States on disk: one file, checked to the last byte, nothing in it is ever executed.

A file is a line that names the format, a line with the SHA-256 of everything after it, and a
safetensors payload. The payload's header holds the state's structure as JSON, in which every
tensor is replaced by its name.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from torch import Tensor

from onpro.errors import UserError

FORMAT = b"onpro state 1\n"


def save_state(path: Path, state: dict[str, Any], *, kind: str) -> None:
    """Write a state so that the file is there completely or not at all, even after a crash.

    Args:
        path: the file; an older one is replaced only once the new one is safe on the disk.
        state: nested dicts with string or integer keys, lists, tuples, tensors, numbers, strings,
            booleans, None.
        kind: what the file holds, asked for again when it is loaded.
    """
    from safetensors.torch import save

    tensors: dict[str, Tensor] = {}
    structure = _describe(state, tensors)
    header = {"kind": kind, "structure": json.dumps(structure, allow_nan=False)}
    payload = save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, header)
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(FORMAT + hashlib.sha256(payload).hexdigest().encode() + b"\n")
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        _sync_folder(path.parent)
    finally:
        part.unlink(missing_ok=True)


def load_state(path: Path, *, kind: str) -> dict[str, Any]:
    """Read a state back, its tensors on the CPU; a sentence where the file is not as it was."""
    from safetensors.torch import load

    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"there is no file {path}.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    if not content.startswith(b"onpro state "):
        raise UserError(f"{path} is not a file that onpro saved.")
    if not content.startswith(FORMAT):
        raise UserError(f"{path} was saved by a newer version of onpro: install that to read it.")
    checksum, payload = content[len(FORMAT) :][:65], content[len(FORMAT) + 65 :]
    if checksum != hashlib.sha256(payload).hexdigest().encode() + b"\n":
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
        return {"tensor": name}
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
        return tensors[content]
    if kind == "dict":
        return {key: _rebuild(item, tensors) for key, item in content}
    items = [_rebuild(item, tensors) for item in content]
    return tuple(items) if kind == "tuple" else items


def _sync_folder(folder: Path) -> None:
    """Make a rename last: the folder's own entry has to reach the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
