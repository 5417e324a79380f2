"""Computational cost of a network."""

import copy

import torch
from torch import nn


def macs(module: nn.Module, image_shape: tuple[int, ...]) -> int:
    """Return the multiply-accumulates of a forward pass in evaluation mode over one image.

    They are those of convolutions and matrix products, so of linear layers and attention too. The
    pass runs on a copy of the module, on the CPU.

    Args:
        module: a network that takes float32 images (n, *image_shape).
        image_shape: shape of one image.
    """
    from torch.utils.flop_counter import FlopCounterMode

    on_cpu = copy.deepcopy(module).cpu().eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        on_cpu(torch.zeros(1, *image_shape))
    flops: int = counter.get_total_flops()
    return flops // 2  # a multiplication and an addition are two FLOPs
