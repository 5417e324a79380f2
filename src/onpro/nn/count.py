"""How large a network is and how much it computes."""

import copy

import torch
from torch import Tensor, nn


def parameters(module: nn.Module) -> int:
    """Number of trainable weights."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def macs(module: nn.Module, image_shape: tuple[int, ...]) -> int:
    """Multiply-accumulates of all convolutions and linear layers for one image."""
    found: list[int] = []

    def count(layer: nn.Module, inputs: object, output: Tensor) -> None:
        weight = layer.get_parameter("weight")
        found.append(output.numel() * weight[0].numel())

    on_cpu = copy.deepcopy(module).cpu().eval()
    for layer in on_cpu.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(count)
    with torch.no_grad():
        on_cpu(torch.zeros(1, *image_shape))
    return sum(found)
