"""Peak arithmetic throughput of a device."""

import torch

from onpro.bench.clock import milliseconds
from onpro.nn import AUTOCAST, Precision

SIDE = {"cuda": 8192, "cpu": 1024}
"""Rows of the matrices, large enough that the arithmetic is all that takes time."""


def matrix_peak(device: torch.device, precision: Precision, repeats: int = 5) -> float:
    """TFLOP/s of the product of two large matrices in a precision, the best of some blocks."""
    side = SIDE[device.type]
    generator = torch.Generator(device).manual_seed(0)
    dtype = AUTOCAST[precision] or torch.float32
    a, b = (torch.randn(side, side, generator=generator, device=device).to(dtype) for _ in range(2))
    product = torch.empty_like(a)

    def multiply() -> None:
        torch.mm(a, b, out=product)

    switch = torch.backends.cuda.matmul
    before = switch.fp32_precision
    switch.fp32_precision = "tf32" if precision == "tf32" else "ieee"
    try:
        multiply()
        fastest = min(milliseconds(multiply, 10, device) for _ in range(repeats))
    finally:
        switch.fp32_precision = before
    return 2 * side**3 / fastest / 1e9
