"""Where a run computes, how precisely, and how repeatably."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import torch

from onpro.errors import UserError
from onpro.nn import Precision

DeviceName = Literal["auto", "cpu", "cuda"]


def pick_device(name: DeviceName) -> torch.device:
    """The device of that name; auto: a GPU where there is one."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("no CUDA device is available here: use --device cpu or auto.")
    if name == "cpu" or not available:
        return torch.device("cpu")
    return torch.device("cuda")


def pick_precision(name: Literal["auto"] | Precision, device: torch.device) -> Precision:
    """The network's precision in training; auto: bf16 on a GPU that has it, else fp32."""
    if name == "tf32" and device.type != "cuda":
        raise UserError("the precision tf32 needs a GPU: use fp32.")
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


WORKSPACE, REPEATABLE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""The variable that fixes how cuBLAS splits a product, and a value NVIDIA names for it."""


@contextmanager
def repeatable(device: torch.device, wanted: bool = True) -> Iterator[None]:
    """Make a GPU compute the same bits in every run; a CPU does so anyway.

    All of torch in this process is told so while it lasts, and is left as it was found. Nothing
    here reads memory it has not written, so torch need not spend time on filling it.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic  # what it has is unknown to its types
    before = cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory
    strict = torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    unset = WORKSPACE not in os.environ
    try:
        os.environ.setdefault(WORKSPACE, REPEATABLE)
        torch.use_deterministic_algorithms(True)
        cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory = False, True, False
        _require_workspace(device)
        yield
    finally:
        cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory = before
        torch.use_deterministic_algorithms(strict, warn_only=lenient)
        if unset:
            del os.environ[WORKSPACE]


def _require_workspace(device: torch.device) -> None:
    """Refuse a process whose first product on a GPU was computed without the variable."""
    one = torch.ones(1, 1, device=device)
    try:
        one @ one
    except RuntimeError as error:
        if WORKSPACE not in str(error):
            raise
        raise UserError(
            "a deterministic run cannot follow another one in the same process: start it in a "
            f"process of its own, or set {WORKSPACE}={REPEATABLE} before the first."
        ) from error
