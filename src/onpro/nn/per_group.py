"""Gradients of several losses, each of some images of a batch, in one backward pass.

In eval mode images do not depend on each other, so that all of them can share a forward pass and
the gradients by the feature maps. Autograd would add up the gradients by the parameters over all
images. Here convolutions, batch norms and linear layers add them up over each group of images.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import batch_norm, conv2d, cross_entropy, linear, unfold
from torch.overrides import TorchFunctionMode


class Groups(NamedTuple):
    """How a batch is divided: some single images first, then some batches of equal size."""

    singles: int
    batches: int

    def sum(self, of_images: Tensor) -> Tensor:
        """Add up values of images (n, …) over each group, (groups, …)."""
        singles, rest = of_images[: self.singles], of_images[self.singles :]
        if not self.batches:
            return singles
        return torch.cat([singles, rest.unflatten(0, (self.batches, -1)).sum(dim=1)])

    def split(self, of_images: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Return the values of the single images, and of the images of each batch."""
        singles, rest = of_images[: self.singles], of_images[self.singles :]
        return singles, rest.chunk(self.batches) if self.batches else ()


def group_gradients(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    groups: Groups,
    *,
    autocast: torch.dtype | None = None,
) -> list[Tensor]:
    """Return the gradients of the mean cross-entropy of each group of images.

    A module with parameters of other layers is computed group by group and in the precision of its
    weights, which is slower.

    Args:
        module: Images to logits, in eval mode, because batch norm must not mix images.
        images: (n, channels, height, width) network input.
        labels: (n,).
        groups: How the images are divided.
        autocast: Half precision of the convolutions; None: that of their weights.

    Returns:
        Gradients (groups, …) of each parameter, in the precision of the parameter.
    """
    found = _gradients_together(module, images, labels, groups, autocast)
    return gradients_group_by_group(module, images, labels, groups) if found is None else found


def _gradients_together(
    module: nn.Module,
    images: Tensor,
    labels: Tensor,
    groups: Groups,
    autocast: torch.dtype | None,
) -> list[Tensor] | None:
    """Return the gradients of all groups; None if a parameter is not only one of known layers."""
    parameters = list(module.parameters())
    layers = _GroupedLayers(parameters, groups, len(images))
    with torch.enable_grad():
        with layers, torch.autocast(images.device.type, autocast, autocast is not None):
            logits = module(images)
        if layers.used != layers.expanded.keys():
            return None
        singles, batches = groups.split(cross_entropy(logits, labels, reduction="none"))
        loss = singles.sum() + sum(batch.mean() for batch in batches)
    expanded = list(layers.expanded.values())
    found = torch.autograd.grad(loss, [*expanded, *parameters], allow_unused=True)
    if any(gradient is not None for gradient in found[len(expanded) :]):
        return None
    return _summed(found[: len(expanded)], groups)


def gradients_group_by_group(
    module: nn.Module, images: Tensor, labels: Tensor, groups: Groups
) -> list[Tensor]:
    """Return what `group_gradients` returns, for any module, with a pass for each batch."""
    names, parameters = zip(*module.named_parameters(), strict=True)
    buffers = dict(module.named_buffers())

    def loss(values: Sequence[Tensor], image: Tensor, label: Tensor) -> Tensor:
        state = dict(zip(names, values, strict=True)) | buffers
        return cross_entropy(functional_call(module, state, (image[None],)), label[None])

    (singles, batches), (of_singles, of_batches) = groups.split(images), groups.split(labels)
    parts: list[Sequence[Tensor]] = []
    if groups.singles:
        values = tuple(parameter.detach() for parameter in parameters)
        parts.append(vmap(grad(loss), in_dims=(None, 0, 0))(values, singles, of_singles))
    for batch, of_batch in zip(batches, of_batches, strict=True):
        with torch.enable_grad():
            mean = cross_entropy(module(batch), of_batch)
        gradients = torch.autograd.grad(mean, parameters, materialize_grads=True)
        parts.append([gradient[None] for gradient in gradients])
    return [torch.cat(rows) for rows in zip(*parts, strict=True)]


def inner_products(some: Sequence[Tensor], others: Sequence[Tensor]) -> Tensor:
    """Return ⟨g_i, G_j⟩ (n, m) of gradients (n, …) and (m, …) of each parameter."""
    pairs = zip(_matrices(some), _matrices(others), strict=True)
    products = [g.transpose(0, 1) @ h.permute(1, 2, 0) for g, h in pairs]
    return torch.cat(products).sum(dim=0)


def _matrices(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients (n, rows, columns) of each parameter, those of vectors as one row.

    A GPU computes the products of the rows in parallel.
    """
    vectors = [g.reshape(len(g), 1, -1) for g in gradients if g.ndim <= 2]
    joined = [torch.cat(vectors, dim=2)] if vectors else []
    return joined + [g.flatten(2) for g in gradients if g.ndim > 2]


def _summed(gradients: Sequence[Tensor], groups: Groups) -> list[Tensor]:
    """Add up the gradients of vectors, which have a row for each image, over each group."""
    vectors = [gradient for gradient in gradients if gradient.ndim == 2]
    if not vectors:
        return list(gradients)
    sums = groups.sum(torch.cat(vectors, dim=1)).split([v.shape[1] for v in vectors], dim=1)
    of_groups = iter(sums)
    return [next(of_groups) if g.ndim == 2 else g for g in gradients]


class _GroupedLayers(TorchFunctionMode):
    """Gives layers expanded parameters, so that gradients are not added up over all images.

    A matrix or kernel has a row for each group. A vector has one for each image; adding up all of
    them in the end takes fewer operations.

    Args:
        parameters: Parameters of the module that is called.
        groups: How the images are divided.
        images: Number of images.
    """

    def __init__(self, parameters: Sequence[Tensor], groups: Groups, images: int) -> None:
        super().__init__()
        self.groups = groups
        self.images = images
        self.expanded = {
            id(value): value.detach()
            .expand(images if value.ndim == 1 else sum(groups), *value.shape)
            .requires_grad_()
            for value in parameters
        }
        self.used: set[int] = set()
        self._layers: dict[Callable[..., Any], Callable[..., Tensor | None]] = {
            conv2d: self._convolution,
            batch_norm: self._batch_norm,
            linear: self._linear,
        }

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Compute a layer if it is one of those known here, else call the function."""
        named = kwargs or {}
        layer = self._layers.get(func)
        result = None if layer is None else layer(*args, **named)
        return func(*args, **named) if result is None else result

    def _convolution(
        self,
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
    ) -> Tensor | None:
        if isinstance(padding, str) or not self._knows(input, 4, weight, bias):
            return None
        options = _pair(stride), _pair(padding), _pair(dilation), groups
        return self._call(_Convolution, input, weight, bias, *options)

    def _batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor | None:
        if training or weight is None or not self._knows(input, 4, weight, bias):
            return None
        return self._call(_BatchNorm, input, weight, bias, running_mean, running_var, eps)

    def _linear(self, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
        if not self._knows(input, 2, weight, bias):
            return None
        return self._call(_Linear, input, weight, bias)

    def _knows(self, x: Tensor, dimensions: int, *values: Tensor | None) -> bool:
        """Return whether a layer has a row for each image and nothing but parameters as weights."""
        known = all(value is None or id(value) in self.expanded for value in values)
        return known and x.ndim == dimensions and len(x) == self.images

    def _call(
        self,
        layer: type[torch.autograd.Function],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        *options: Any,
    ) -> Tensor:
        weights = self.expanded[id(weight)]
        biases = None if bias is None else self.expanded[id(bias)]
        self.used |= {id(value) for value in (weight, bias) if value is not None}
        result: Tensor = layer.apply(self.groups, x, weights, biases, *options)
        return result


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, groups: Groups, x: Tensor, weights: Tensor, biases: Tensor | None, *options: Any
    ) -> Tensor:
        ctx.save_for_backward(x, weights)
        ctx.groups, ctx.options = groups, options
        return conv2d(x, weights[0], _first(biases), *options)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weights = ctx.saved_tensors
        groups: Groups = ctx.groups
        x, weight = x.to(g.dtype), weights[0].to(g.dtype)
        grad_weights = torch.empty_like(weights, memory_format=torch.contiguous_format)
        (x_singles, x_batches), (g_singles, g_batches) = groups.split(x), groups.split(g)
        if groups.singles:
            singles = x_singles.to(weights.dtype), g_singles.to(weights.dtype)
            _single_gradients(*singles, grad_weights[: groups.singles], *ctx.options)
        of_batches = zip(grad_weights[groups.singles :], x_batches, g_batches, strict=True)
        for row, x_batch, g_batch in of_batches:
            row.copy_(_convolution_gradients(x_batch, g_batch, weight, ctx.options, 1))
        grad_x = grad_biases = None
        if ctx.needs_input_grad[1]:
            grad_x = _convolution_gradients(x, g, weight, ctx.options, 0)
        if ctx.needs_input_grad[3]:
            grad_biases = g.sum(dim=(2, 3), dtype=weights.dtype)
        return None, grad_x, grad_weights, grad_biases, *[None] * len(ctx.options)


def _convolution_gradients(
    x: Tensor, g: Tensor, weight: Tensor, options: Sequence[Any], which: int
) -> Tensor:
    """Return the gradient of a convolution by its input (0) or its weight (1).

    `torch.nn.grad` does the same, but on a GPU it copies g to another memory layout and back.
    """
    *sizes, channel_groups = options
    wanted = [which == 0, which == 1, False]
    gradient: Tensor = torch.ops.aten.convolution_backward(
        g, x, weight, None, *sizes, False, [0, 0], channel_groups, wanted
    )[which]
    return gradient


def _single_gradients(
    x: Tensor,
    g: Tensor,
    grad_weights: Tensor,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    channel_groups: int,
) -> None:
    """Store the gradients of a convolution by its weight, image by image: g times patches of x."""
    parts = len(x) * channel_groups
    as_channels = x.reshape(1, -1, *x.shape[2:])  # a GPU unfolds image after image
    patches = unfold(as_channels, grad_weights.shape[3:], dilation, padding, stride)
    patches = patches.view(parts, -1, patches.shape[-1])
    maps = g.reshape(parts, -1, patches.shape[-1])
    out = grad_weights.view(parts, maps.shape[1], patches.shape[1])
    torch.bmm(maps, patches.mT, out=out)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        groups: Groups,
        x: Tensor,
        weights: Tensor,
        biases: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weights, mean, torch.rsqrt(variance + eps))
        return batch_norm(x, mean, variance, weights[0], _first(biases), eps=eps)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weights, mean, scale = ctx.saved_tensors
        sums = g.sum(dim=(2, 3), dtype=weights.dtype)
        products = (g * x).sum(dim=(2, 3), dtype=weights.dtype)
        grad_weights = torch.addcmul(products, mean, sums, value=-1) * scale
        grad_x = torch.mul(g, (weights[0] * scale)[:, None, None], out=torch.empty_like(g))
        grad_biases = sums if ctx.needs_input_grad[3] else None
        return None, grad_x, grad_weights, grad_biases, None, None, None


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, groups: Groups, x: Tensor, weights: Tensor, biases: Tensor | None
    ) -> Tensor:
        x = x.to(weights.dtype)
        ctx.save_for_backward(x, weights)
        ctx.groups = groups
        with torch.autocast(x.device.type, enabled=False):
            return linear(x, weights[0], _first(biases))

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (g,) = gradients
        x, weights = ctx.saved_tensors
        (x_singles, x_batches), (g_singles, g_batches) = ctx.groups.split(x), ctx.groups.split(g)
        of_singles = g_singles[:, :, None] * x_singles[:, None, :]
        of_batches = [(b.T @ a)[None] for a, b in zip(x_batches, g_batches, strict=True)]
        grad_weights = torch.cat([of_singles, *of_batches])
        grad_biases = g if ctx.needs_input_grad[3] else None
        return None, g @ weights[0], grad_weights, grad_biases


def _first(expanded: Tensor | None) -> Tensor | None:
    """Return the parameter that was expanded."""
    return None if expanded is None else expanded[0]


def _pair(size: int | tuple[int, ...]) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)
