"""Linear heads to which outputs can be added."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class GrowingLinear(nn.Module):
    """A linear layer to which outputs can be added during training.

    Weights and biases are initialised as in `torch.nn.Linear`, from U(−1/√in, 1/√in), but with the
    given generator.

    Args:
        in_features: Dimension of the features.
        out_features: Initial number of outputs (classes); may be 0.
        generator: Source of the initial weights.
    """

    weight: nn.Parameter
    """(out_features, in_features)"""
    bias: nn.Parameter
    """(out_features,)"""

    def __init__(self, in_features: int, out_features: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        for name, rows in self._fresh_rows(out_features, generator).items():
            setattr(self, name, nn.Parameter(rows))

    def forward(self, features: Tensor) -> Tensor:
        """Return outputs (n, out_features) for features (n, in_features)."""
        return linear(features, self.weight, self.bias)

    def grow(
        self,
        out_features: int,
        *,
        generator: torch.Generator,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Add outputs between two steps; existing outputs keep their weights.

        The parameters are replaced by larger ones, also in the optimizer, whose state is kept for
        the old outputs and zero for the new ones.

        Args:
            out_features: New number of outputs.
            generator: Source of the new weights.
            optimizer: Optimizer of the parameters, if any.
        """
        added = out_features - self.out_features
        if added < 0:
            raise ValueError(
                f"a head of {self.out_features} outputs cannot shrink to {out_features}"
            )
        if added == 0:
            return
        for name, rows in self._fresh_rows(added, generator).items():
            setattr(self, name, extend(getattr(self, name), rows, optimizer))
        self.out_features = out_features

    def renew(
        self,
        output: int,
        *,
        generator: torch.Generator,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Reinitialise an output between two steps.

        Args:
            output: Index of the output.
            generator: Source of the new weights.
            optimizer: Optimizer of the parameters, if any, whose state of the output is reset.
        """
        for name, rows in self._fresh_rows(1, generator).items():
            renew_row(getattr(self, name), output, rows[0], optimizer)

    def extra_repr(self) -> str:
        """Return the sizes for `repr`."""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def _fresh_rows(self, rows: int, generator: torch.Generator) -> dict[str, Tensor]:
        """Sample rows of every parameter, by its name."""
        bound = 1 / math.sqrt(self.in_features)
        weight = torch.empty(rows, self.in_features, device=generator.device)
        bias = torch.empty(rows, device=generator.device)
        return {
            "weight": weight.uniform_(-bound, bound, generator=generator),
            "bias": bias.uniform_(-bound, bound, generator=generator),
        }


class GrowingCosine(GrowingLinear):
    """A growing layer whose outputs are scaled cosines between features and weights, without bias.

    Args:
        in_features: Dimension of the features.
        out_features: Initial number of outputs (classes); may be 0.
        scale: Factor of the cosines, the inverse of a temperature.
        epsilon: Constant that is added to the norms of features and weights.
        generator: Source of the initial weights.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        scale: float,
        epsilon: float,
        generator: torch.Generator,
    ) -> None:
        super().__init__(in_features, out_features, generator=generator)
        self.scale = scale
        self.epsilon = epsilon

    def forward(self, features: Tensor) -> Tensor:
        """Return outputs (n, out_features) for features (n, in_features)."""
        return self.scale * linear(self._unit(features), self._unit(self.weight))

    def _unit(self, vectors: Tensor) -> Tensor:
        length: Tensor = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        return vectors / (length + self.epsilon)

    def _fresh_rows(self, rows: int, generator: torch.Generator) -> dict[str, Tensor]:
        return {"weight": super()._fresh_rows(rows, generator)["weight"]}


def extend(
    old: nn.Parameter, rows: Tensor, optimizer: torch.optim.Optimizer | None
) -> nn.Parameter:
    """Return the parameter with rows appended, which replaces the old one in the optimizer."""
    new = nn.Parameter(torch.cat([old.detach(), rows.to(old)]), requires_grad=old.requires_grad)
    if optimizer is None:
        return new
    for group in optimizer.param_groups:
        group["params"] = [new if p is old else p for p in group["params"]]
    if old in optimizer.state:
        optimizer.state[new] = {
            name: torch.cat([value, torch.zeros_like(rows, dtype=value.dtype, device=value.device)])
            if isinstance(value, Tensor) and value.shape == old.shape
            else value
            for name, value in optimizer.state.pop(old).items()
        }
    return new


@torch.no_grad()
def renew_row(
    parameter: nn.Parameter, row: int, value: Tensor, optimizer: torch.optim.Optimizer | None
) -> None:
    """Overwrite a row of a parameter and reset its optimizer state."""
    parameter[row] = value
    averages = optimizer.state.get(parameter, {}) if optimizer is not None else {}
    for average in averages.values():
        if isinstance(average, Tensor) and average.shape == parameter.shape:
            average[row] = 0
