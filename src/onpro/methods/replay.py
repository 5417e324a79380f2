"""What the methods share that train with SGD on new and on replayed images."""

from dataclasses import dataclass

import torch

from onpro.methods.base import sgd
from onpro.methods.network import Network
from onpro.methods.settings import Settings, require


@dataclass(frozen=True)
class ReplaySettings(Settings):
    """Settings of a method that replays stored images and trains with SGD."""

    learning_rate: float = 0.1
    """Learning rate of SGD (default from the paper)."""

    momentum: float = 0.0
    """Momentum of SGD (default from the paper)."""

    weight_decay: float = 0.0
    """Weight decay of SGD (default from the paper)."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        require(self.learning_rate > 0, "the learning rate must be above 0.")
        require(0 <= self.momentum < 1, "the momentum must be at least 0 and below 1.")
        require(self.weight_decay >= 0, "the weight decay must not be negative.")
        require(self.replay_batch >= 1, "the replay batch must hold at least 1 image.")

    def optimizer(self, network: Network) -> torch.optim.SGD:
        """SGD of these settings for a network."""
        return sgd(network.parameters(), self.learning_rate, self.momentum, self.weight_decay)
