"""How a method descends: SGD, as the paper has it for most, or Adam."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from onpro.methods.settings import Settings, require
from onpro.nn.optimizers import SGD, Adam


@dataclass(frozen=True)
class DescentSettings(Settings):
    """Settings of an optimizer."""

    optimizer: Literal["sgd", "adam"] = "sgd"
    """What takes the steps: sgd (default from the paper) or adam."""

    learning_rate: float = 0.1
    """Length of the optimizer's steps (default from the paper, for SGD)."""

    momentum: float = 0.0
    """Momentum of SGD; Adam has averages of its own (default from the paper)."""

    weight_decay: float = 0.0
    """Weight decay, added to the gradient (default from the paper)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        require(self.learning_rate > 0, "the learning rate must be above 0.")
        require(0 <= self.momentum < 1, "the momentum must be at least 0 and below 1.")
        require(
            self.optimizer == "sgd" or self.momentum == 0,
            "momentum is for SGD: leave it at 0, or set the optimizer to sgd.",
        )
        require(self.weight_decay >= 0, "the weight decay must not be negative.")

    def make_optimizer(self, parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
        """The optimizer, whose step is one fused kernel."""
        rate, decay = self.learning_rate, self.weight_decay
        if self.optimizer == "adam":
            return Adam(parameters, rate, weight_decay=decay, fused=True)
        return SGD(parameters, rate, momentum=self.momentum, weight_decay=decay, fused=True)
