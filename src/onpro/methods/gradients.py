"""Gradients as vectors, and one gradient for each image of a batch."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy


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
