"""A head on the logits of two views of an image."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from onpro.nn.heads import GrowingLinear, extend, renew_row


class JointHead(nn.Module):
    """Logits of both views → a hidden layer → joint logits, for as many classes as there are.

    It starts as two linear layers of the framework do, U(−1/√in, 1/√in), in being the size of
    their input, but draws from the given generator.

    Args:
        classes: Number of logits of a view, and of joint logits, to start with; may be 0.
        hidden: Size of the hidden layer.
        generator: Source of the initial weights.
    """

    def __init__(self, classes: int, hidden: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.outward = GrowingLinear(hidden, classes, generator=generator)
        self.inward = nn.Parameter(self._fresh(classes, classes, generator))
        """(classes, 2, hidden): a row for each class, so that rows can be added."""
        bias = torch.empty(hidden, device=generator.device)
        bound = _bound(classes)
        self.bias = nn.Parameter(bias.uniform_(-bound, bound, generator=generator))

    @property
    def classes(self) -> int:
        """Number of logits of a view, and of joint logits."""
        return self.outward.out_features

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Joint logits (n, classes) from the logits (n, classes) of each view."""
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
        """Add classes, between two steps; those that exist keep their weights."""
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
        """Give a class fresh weights, between two steps, as if it had never been trained."""
        self.outward.renew(output, generator=generator, optimizer=optimizer)
        renew_row(self.inward, output, self._fresh(1, self.classes, generator)[0], optimizer)

    def _fresh(self, rows: int, classes: int, generator: torch.Generator) -> Tensor:
        """Rows of the first layer, where it has inputs for so many classes in all."""
        weight = torch.empty(rows, 2, self.outward.in_features, device=generator.device)
        bound = _bound(classes)
        return weight.uniform_(-bound, bound, generator=generator)


def _bound(classes: int) -> float:
    """1/√in of a layer on two logits for each class; 0 where there are none."""
    return 1 / math.sqrt(2 * classes) if classes else 0.0
