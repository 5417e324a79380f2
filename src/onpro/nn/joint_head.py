"""DVC's head on the logits of two views of an image."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from onpro.nn.heads import GrowingLinear, extend, renew_row


class JointHead(nn.Module):
    """Two linear layers with a ReLU in between, from the logits of both views to joint logits.

    They are initialised as `torch.nn.Linear`, from U(−1/√in, 1/√in), but with the given generator.

    Args:
        classes: Initial number of classes; may be 0.
        hidden: Dimension of the hidden layer.
        generator: Source of the initial weights.
    """

    def __init__(self, classes: int, hidden: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.outward = GrowingLinear(hidden, classes, generator=generator)
        self.inward = nn.Parameter(self._fresh(classes, classes, generator))
        """(classes, 2, hidden): first layer, one row per class so that it can grow."""
        bias = torch.empty(hidden, device=generator.device)
        bound = _bound(classes)
        self.bias = nn.Parameter(bias.uniform_(-bound, bound, generator=generator))

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.outward.out_features

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Return joint logits (n, classes) of the logits (n, classes) of each view."""
        hidden = relu(first @ self.inward[:, 0] + second @ self.inward[:, 1] + self.bias)
        joint: Tensor = self.outward(hidden)
        return joint

    def grow(
        self,
        classes: int,
        *,
        generator: torch.Generator,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Add classes between two steps; see `GrowingLinear.grow`."""
        rows = self._fresh(classes - self.classes, classes, generator)
        self.inward = extend(self.inward, rows, optimizer)
        self.outward.grow(classes, generator=generator, optimizer=optimizer)

    def renew(
        self,
        output: int,
        *,
        generator: torch.Generator,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Reinitialise a class between two steps; see `GrowingLinear.renew`."""
        self.outward.renew(output, generator=generator, optimizer=optimizer)
        renew_row(self.inward, output, self._fresh(1, self.classes, generator)[0], optimizer)

    def _fresh(self, rows: int, classes: int, generator: torch.Generator) -> Tensor:
        """Sample rows of the first layer, which has inputs for `classes` classes in total."""
        weight = torch.empty(rows, 2, self.outward.in_features, device=generator.device)
        bound = _bound(classes)
        return weight.uniform_(-bound, bound, generator=generator)


def _bound(classes: int) -> float:
    """Return 1/√in of the first layer, 0 if there are no classes."""
    return 1 / math.sqrt(2 * classes) if classes else 0.0
