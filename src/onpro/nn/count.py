"""How large a network is and how much it computes."""

import copy

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def parameters(module: nn.Module) -> int:
    """Number of trainable weights."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def macs(module: nn.Module, image_shape: tuple[int, ...]) -> int:
    """Multiply-accumulates of all convolutions and matrix products for one image.

    Nothing is computed: a copy of the module without storage runs on an image without storage.
    """
    shadow = copy.deepcopy(module).to("meta").eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(torch.empty((1, *image_shape), device="meta"))
    return int(counter.get_total_flops()) // 2
