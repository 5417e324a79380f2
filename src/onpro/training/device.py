"""Device, precision and determinism of a run."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

import torch

from onpro.errors import UserError
from onpro.nn import Precision

DeviceName = Literal["auto", "cpu", "cuda"]


def pick_device(name: DeviceName) -> torch.device:
    """Return the device of that name; "auto" is a GPU if there is one."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("no CUDA device is available here: use --device cpu or auto.")
    if name == "cpu" or not available:
        return torch.device("cpu")
    return torch.device("cuda")


def pick_precision(name: Literal["auto"] | Precision, device: torch.device) -> Precision:
    """Return the network's precision in training; "auto" is bf16 on GPUs that support it."""
    if name == "tf32" and device.type != "cuda":
        raise UserError("the precision tf32 needs a GPU: use fp32.")
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt in glibc."""


def keep_freed_memory() -> bool:
    """Let the process reuse the memory of tensors on the CPU instead of returning it to the system.

    The similarities of a step of OnPro or OCM take tens of MB, which the system would provide anew
    in each step, page by page: 15 % of the time of a step.

    Returns:
        Whether the C library could be told so; only glibc can.
    """
    with suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(MMAP_THRESHOLD, 2**25) and mallopt(TRIM_THRESHOLD, 2**30))
    return False


WORKSPACE, DETERMINISTIC = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"
"""The environment variable that makes cuBLAS deterministic, and a value NVIDIA documents."""


@contextmanager
def deterministic_mode(device: torch.device, enabled: bool = True) -> Iterator[None]:
    """Use deterministic algorithms on a GPU, for equal results bit for bit; a CPU always does.

    The settings apply to the whole process and are restored on exit. Uninitialised memory is not
    filled, because this package never reads it.
    """
    if not enabled or device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic  # its attributes are not typed
    before = cudnn.benchmark, cudnn.deterministic, memory.fill_uninitialized_memory
    strict = torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    unset = WORKSPACE not in os.environ
    try:
        os.environ.setdefault(WORKSPACE, DETERMINISTIC)
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
    """Raise UserError if cuBLAS was initialised in this process without the variable."""
    one = torch.ones(1, 1, device=device)
    try:
        one @ one
    except RuntimeError as error:
        if WORKSPACE not in str(error):
            raise
        raise UserError(
            "a deterministic run cannot follow another one in the same process: start it in a "
            f"process of its own, or set {WORKSPACE}={DETERMINISTIC} before the first."
        ) from error
