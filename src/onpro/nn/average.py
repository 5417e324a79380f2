"""A moving average of a network's weights, to distil from and to predict with."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from onpro.nn.network import Network
from onpro.nn.teacher import widen


class MovingAverage:
    """A network whose weights follow those of others: θ′ ← (1 − α)·θ′ + α·θ.

    Only weights are averaged: it is in train mode and normalises by the statistics of its batch,
    and its own running statistics move.

    Args:
        network: The network to copy.
        rate: α.
        start: The share of the network's weights to start with.
    """

    def __init__(self, network: Network, rate: float, *, start: float = 1.0) -> None:
        self.rate, self.start = rate, start
        self.network = deepcopy(network).requires_grad_(False).train()
        torch._foreach_mul_(weights(self.network), start)

    @torch.no_grad()
    def follow(self, *networks: Network) -> None:
        """Move towards the networks, or the mean of several, after a step."""
        keep = 1 - self.rate
        torch._foreach_mul_(weights(self.network), keep)
        for network in networks:
            share = self.rate / len(networks)
            torch._foreach_add_(weights(self.network), weights(network), alpha=share)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits (n, outputs) of network input."""
        return self.network.logits(images)

    def grow(self, network: Network) -> None:
        """Add the outputs that a network has more, as at the start."""
        known = self.network.classifier.out_features
        widen(self.network, network.classifier.out_features)
        self.renew(network, range(known, network.classifier.out_features))

    def renew(self, network: Network, outputs: Sequence[int]) -> None:
        """Set some outputs to those of a network, as at the start."""
        rows = list(outputs)
        for own_head, head in zip(self.network.classifiers(), network.classifiers(), strict=True):
            for own, new in zip(weights(own_head), weights(head), strict=True):
                own[rows] = self.start * new[rows]

    def state_dict(self) -> dict[str, Any]:
        """The averaged network."""
        return {"network": self.network.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state; it may have more classes than this one."""
        widen(self.network, len(state["network"]["classifier.weight"]))
        self.network.load_state_dict(state["network"])


def move_towards(network: Network, other: Network, share: float) -> None:
    """Move the weights of a network a share of the way to another's."""
    torch._foreach_lerp_(weights(network), weights(other), share)


def weights(module: nn.Module) -> list[Tensor]:
    """The parameters of a module, outside of autograd."""
    return [parameter.detach() for parameter in module.parameters()]
