"""The precisions a network can compute in."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Literal

import torch

Precision = Literal["fp32", "tf32", "fp16", "bf16"]
"""Of a network in training. fp32 is IEEE single precision. tf32 keeps the values in single
precision and lets a GPU round the factors of a convolution to mantissas of 10 bits. So do fp16 and
bf16 in those training passes that they leave in single precision, and in predictions."""

Rounding = Literal["ieee", "tf32"]
"""Of the factors of float32 convolutions on a GPU: none, or to mantissas of 10 bits."""

AUTOCAST: dict[Precision, torch.dtype | None] = {
    "fp32": None,
    "tf32": None,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}

_wanted: Counter[str] = Counter()
_found = "tf32"
_users, _found_dtype = 0, torch.float32
_lock = Lock()


@contextmanager
def convolutions(rounding: Rounding) -> Iterator[None]:
    """Compute float32 convolutions of cuDNN exactly, or with TF32, which is torch's default.

    All threads of a process share cuDNN's switch. While several want something of it, exactness
    wins; when none does any more, it is as it was found.
    """
    _want(rounding, 1)
    try:
        yield
    finally:
        _want(rounding, -1)


def _want(rounding: str, change: int) -> None:
    global _found
    cudnn: Any = torch.backends.cudnn  # whose types know no `conv`
    with _lock:
        if not _wanted.total():
            _found = cudnn.conv.fp32_precision
        _wanted[rounding] += change
        wishes = [kind for kind in ("ieee", "tf32") if _wanted[kind]]
        cudnn.conv.fp32_precision = wishes[0] if wishes else _found


@contextmanager
def float32_by_default() -> Iterator[None]:
    """Create tensors in float32 unless told otherwise, whatever `torch.set_default_dtype` says.

    All threads of a process share torch's default: it is float32 for all of them until the last
    context ends, and then as it was found.
    """
    _use_float32(1)
    try:
        yield
    finally:
        _use_float32(-1)


def _use_float32(change: int) -> None:
    global _users, _found_dtype
    with _lock:
        if not _users:
            _found_dtype = torch.get_default_dtype()
        _users += change
        dtype = torch.float32 if _users else _found_dtype
        if torch.get_default_dtype() != dtype:
            torch.set_default_dtype(dtype)
