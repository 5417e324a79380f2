"""Gradients as vectors, gradients of single images, and virtual steps along a gradient."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from onpro.nn.pretrained import own_rate


def flattened(gradients: Iterable[Tensor]) -> Tensor:
    """Gradients of parameters as one vector (p,)."""
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def batch_gradient(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The gradient (p,) of the mean cross-entropy of a batch, all parameters in one vector."""
    with torch.enable_grad():
        loss = cross_entropy(module(inputs), labels)
    return flattened(torch.autograd.grad(loss, list(module.parameters())))


def per_sample_gradients(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    """The gradient (n, p) of the cross-entropy of each image by itself.

    The module must be in eval mode: a batch norm over one image is another function, and may not
    keep statistics here. Then the mean of the rows is the gradient of the batch.
    """
    parameters = {name: value.detach() for name, value in module.named_parameters()}
    buffers = dict(module.named_buffers())

    def loss(values: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(module, (values, buffers), (image[None],))
        return cross_entropy(logits, label[None])

    each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, labels)
    return torch.cat([gradient.flatten(start_dim=1) for gradient in each.values()], dim=1)


def cosines(gradients: Tensor, reference: Tensor) -> Tensor:
    """cos(g_i, G) of gradients (n, p) and a reference (p,), (n,); 0 where one of them is zero."""
    lengths: Tensor = gradients.norm(dim=1) * reference.norm()
    return (gradients @ reference) / lengths.clamp(min=1e-8)


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
        learning_rate: length of the step; a weight of a pretrained encoder takes its own.
        loss_scale: what the loss was multiplied by before its backward pass, see
            `Method.loss_scale`.

    Returns:
        A function from the module's input to its output.
    """

    def moved(parameter: nn.Parameter) -> Tensor:
        if parameter.grad is None:
            return parameter.detach()
        rate = own_rate(parameter) or learning_rate
        return parameter - rate / loss_scale * parameter.grad

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
