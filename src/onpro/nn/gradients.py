"""Gradients as vectors, projections, and virtual steps along a gradient."""

import functools
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from onpro.nn.pretrained import own_rate


def flattened(gradients: Iterable[Tensor]) -> Tensor:
    """Gradients of parameters as one vector (p,)."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


@torch.no_grad()
def virtual_step(
    module: nn.Module, learning_rate: float, loss_scale: Tensor
) -> Callable[[Tensor], Tensor]:
    """The module with θ′ = θ − learning_rate·∇L, ∇L being its present gradients.

    A plain step, without momentum or decay, whatever optimizer trains the module. Only the
    parameters are computed anew and the buffers copied: in train mode the virtual module uses the
    statistics of its batch and leaves the running statistics of the real one alone. A part of
    a network can be stepped by itself.

    Args:
        module: the module, whose parameters hold the gradients of a backward pass; one without
            a gradient stays where it is.
        learning_rate: length of the step; a weight of a pretrained encoder takes its own.
        loss_scale: what the loss was multiplied by before its backward pass, see
            `Method.loss_scale`.

    Returns:
        A function from the module's input to its output.
    """

    @functools.cache
    def step_length(rate: float) -> Tensor:
        return -rate / loss_scale

    def moved(parameter: nn.Parameter) -> Tensor:
        if parameter.grad is None:
            return parameter.detach()
        factor = step_length(own_rate(parameter) or learning_rate)
        return torch.addcmul(parameter, parameter.grad, factor)

    state = {name: moved(parameter) for name, parameter in module.named_parameters()}
    state |= {name: buffer.clone() for name, buffer in module.named_buffers()}

    def stepped(inputs: Tensor) -> Tensor:
        output: Tensor = functional_call(module, state, (inputs,))
        return output

    return stepped


def projected(gradients: Sequence[Tensor], reference: Sequence[Tensor]) -> list[Tensor]:
    """G − (⟨G, G_ref⟩ / ⟨G_ref, G_ref⟩)·G_ref where ⟨G, G_ref⟩ < 0, else G.

    Both inner products run over all parameters at once, not layer by layer. A common factor of
    both gradients changes nothing, so they may be scaled for half precision.

    Args:
        gradients: G, parameter by parameter.
        reference: G_ref, likewise.
    """
    whole, whole_reference = flattened(gradients), flattened(reference)
    product = (whole * whole_reference).sum()
    share = torch.where(product < 0, product / whole_reference.square().sum(), 0.0)
    return [torch.addcmul(g, share, r, value=-1) for g, r in zip(gradients, reference, strict=True)]
