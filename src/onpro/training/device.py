"""Where a run computes, and how precisely."""

from typing import Literal

import torch

from onpro.errors import UserError

DeviceName = Literal["auto", "cpu", "cuda"]
Precision = Literal["fp32", "fp16", "bf16"]

AUTOCAST: dict[Precision, torch.dtype | None] = {
    "fp32": None,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}


def pick_device(name: DeviceName) -> torch.device:
    """The device of that name; auto: a GPU where there is one."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UserError("no CUDA device is available here: use --device cpu or auto.")
    if name == "cpu" or not available:
        return torch.device("cpu")
    torch.backends.cudnn.benchmark = True  # shapes repeat: let cuDNN find its fastest kernels
    return torch.device("cuda")


def pick_precision(name: Literal["auto"] | Precision, device: torch.device) -> Precision:
    """The network's precision in training; auto: bf16 on a GPU that has it, else fp32."""
    if name != "auto":
        return name
    return "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
