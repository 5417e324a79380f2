"""A moving average of a network's weights, to distil from and to predict with."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from onpro.nn.network import Network
from onpro.nn.teacher import widen


class MovingAverage:
    """A network whose weights follow those of another: θ′ ← (1 − α)·θ′ + α/(1 − α^k)·θ.

    It starts at α/(1 − α)·θ, so its first outputs are nearly uniform; k is a tenth of the number of
    steps, at least 1. Only weights are averaged: it is in train mode and normalises by the statistics of
    its batch, and its own running statistics move.

    Args:
        network: The network to follow.
        rate: α.
    """

    def __init__(self, network: Network, rate: float) -> None:
        self.rate = rate
        self.network = deepcopy(network).requires_grad_(False).train()
        self.steps = torch.zeros((), device=network.classifier.weight.device)
        torch._foreach_mul_(weights(self.network), self.first)

    @property
    def first(self) -> float:
        """The share of the network's weights that the average starts with."""
        return self.rate / (1 - self.rate)

    @torch.no_grad()
    def follow(self, network: Network) -> None:
        """Move towards the network, after one of its steps."""
        self.steps = self.steps + 1
        corrected = 1 - self.rate ** (self.steps / 10).floor().clamp(min=1)
        averaged, added = weights(self.network), self.rate / corrected
        torch._foreach_mul_(averaged, 1 - self.rate)
        torch._foreach_add_(averaged, list(torch._foreach_mul(weights(network), added)))

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits (n, outputs) of network input."""
        return self.network.logits(images)

    def grow(self, network: Network) -> None:
        """Get the outputs that the network has got, as at the start."""
        known = self.network.classifier.out_features
        widen(self.network, network.classifier.out_features)
        self.renew(network, range(known, network.classifier.out_features))

    def renew(self, network: Network, outputs: Sequence[int]) -> None:
        """Set some outputs to those of the network, as at the start."""
        rows = list(outputs)
        for own, new in zip(weights(self.network.classifier), weights(network.classifier)):
            own[rows] = self.first * new[rows]

    def state_dict(self) -> dict[str, Any]:
        """The averaged network and the number of steps."""
        return {"network": self.network.state_dict(), "steps": self.steps.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state; it may have more classes than this one."""
        widen(self.network, len(state["network"]["classifier.bias"]))
        self.network.load_state_dict(state["network"])
        if (state["steps"].shape, state["steps"].dtype) != (self.steps.shape, self.steps.dtype):
            raise ValueError("the state's number of steps is not a number")
        self.steps = state["steps"].to(self.steps.device)


class MeanNetwork:
    """A network whose weights are the mean of two others'; its running statistics the first's.

    It has no state: it follows from the two networks.

    Args:
        first: A network.
        second: Another of the same shape.
    """

    def __init__(self, first: Network, second: Network) -> None:
        self.network = deepcopy(first).requires_grad_(False)
        self.become(first, second)

    @torch.no_grad()
    def become(self, first: Network, second: Network) -> None:
        """Take the mean of two networks."""
        widen(self.network, first.classifier.out_features)
        torch._foreach_copy_(weights(self.network), weights(first))
        torch._foreach_lerp_(weights(self.network), weights(second), 0.5)
        for own, buffer in zip(self.network.buffers(), first.buffers(), strict=True):
            own.copy_(buffer)


def weights(module: nn.Module) -> list[Tensor]:
    """The parameters of a module, outside of autograd."""
    return [parameter.detach() for parameter in module.parameters()]
