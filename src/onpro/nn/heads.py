"""What stands on top of an encoder."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class GrowingLinear(nn.Module):
    """A linear layer to which outputs can be added while it is trained.

    It starts as the framework's own linear layer does, U(−1/√in, 1/√in) for weights and biases,
    but draws from the given generator.

    Args:
        in_features: Size of the features.
        out_features: Number of outputs (classes) to start with; may be 0.
        generator: Source of the initial weights.
    """

    def __init__(self, in_features: int, out_features: int, *, generator: torch.Generator) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        weight, bias = self._fresh_rows(out_features, generator)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(bias)

    def forward(self, features: Tensor) -> Tensor:
        """Outputs (n, out_features) for features (n, in_features)."""
        return linear(features, self.weight, self.bias)

    def grow(
        self,
        out_features: int,
        *,
        generator: torch.Generator,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Add outputs, between two steps; those that exist keep their weights.

        The parameters are new objects afterwards. The optimizer that trains them learns of it and
        keeps what it knows of the old outputs; its moving averages start at zero for the new.

        Args:
            out_features: Number of outputs afterwards; nothing happens if there are as many.
            generator: Source of the new weights.
            optimizer: The one that has the parameters.
        """
        added = out_features - self.out_features
        if added < 0:
            raise ValueError(f"a head of {self.out_features} outputs cannot go to {out_features}")
        if added == 0:
            return
        weight_rows, bias_rows = self._fresh_rows(added, generator)
        self.weight = extend(self.weight, weight_rows, optimizer)
        self.bias = extend(self.bias, bias_rows, optimizer)
        self.out_features = out_features

    def renew(
        self,
        output: int,
        *,
        generator: torch.Generator,
        optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        """Give an output fresh weights, between two steps, as if it had never been trained.

        Args:
            output: Which one.
            generator: Source of the new weights.
            optimizer: The one that has the parameters; its moving averages of the output end.
        """
        weight, bias = self._fresh_rows(1, generator)
        renew_row(self.weight, output, weight[0], optimizer)
        renew_row(self.bias, output, bias[0], optimizer)

    def extra_repr(self) -> str:
        """The sizes, for `print`."""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def _fresh_rows(self, rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        bound = 1 / math.sqrt(self.in_features)
        weight = torch.empty(rows, self.in_features, device=generator.device)
        bias = torch.empty(rows, device=generator.device)
        return (
            weight.uniform_(-bound, bound, generator=generator),
            bias.uniform_(-bound, bound, generator=generator),
        )


def extend(
    old: nn.Parameter, rows: Tensor, optimizer: torch.optim.Optimizer | None
) -> nn.Parameter:
    """The parameter with rows added below, put in the place of the old one in the optimizer."""
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
    """Overwrite a row of a parameter, and forget what the optimizer has averaged of it."""
    parameter[row] = value
    averages = optimizer.state.get(parameter, {}) if optimizer is not None else {}
    for average in averages.values():
        if isinstance(average, Tensor) and average.shape == parameter.shape:
            average[row] = 0
