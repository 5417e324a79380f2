"""A network as one plain SGD step would leave it, while the real one stays as it is."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call


@torch.no_grad()
def virtual_step(
    module: nn.Module, learning_rate: float, loss_scale: Tensor | float = 1.0
) -> Callable[[Tensor], Tensor]:
    """The module with θ′ = θ − learning_rate·∇L, ∇L being its present gradients.

    A plain step, without momentum or decay, whatever optimizer trains the module. Only the
    parameters are computed anew and the buffers copied: in train mode the virtual module uses the
    statistics of its batch and leaves the running statistics of the real one alone. A part of
    a network can be stepped by itself.

    Args:
        module: the module, whose parameters hold the gradients of a backward pass; one without
            a gradient stays where it is.
        learning_rate: length of the step.
        loss_scale: what the loss was multiplied by before its backward pass, see
            `Method.loss_scale`.

    Returns:
        A function from the module's input to its output.
    """
    rate = learning_rate / loss_scale
    state = {
        name: parameter.detach() if parameter.grad is None else parameter - rate * parameter.grad
        for name, parameter in module.named_parameters()
    }
    state |= {name: buffer.clone() for name, buffer in module.named_buffers()}

    def stepped(inputs: Tensor) -> Tensor:
        output: Tensor = functional_call(module, state, (inputs,))
        return output

    return stepped
