"""Where tests of Triton kernels run: on a GPU, or interpreted on a CPU."""

import os

import pytest
import torch

from onpro.nn import fused_kernels_exist

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"

needs_kernels = pytest.mark.skipif(
    not fused_kernels_exist() or not (INTERPRETED or torch.cuda.is_available()),
    reason="needs a CUDA device",
)
