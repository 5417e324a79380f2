"""The forward passes of a step, and the time that they take alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from onpro.methods.registry import AnyMethod
from onpro.nn import Encoder
from onpro.training import Engine
from onpro.training.graphs import capture

BACKWARD = 2
"""A backward pass computes as much as two forward passes."""


class Forward(NamedTuple):
    """A forward pass of an encoder, the network's own or a copy's."""

    images: int
    gradient: bool
    """Whether a backward pass follows."""
    training: bool
    half: bool
    """Whether it is computed in the run's half precision."""


@contextmanager
def recorded(device: torch.device) -> Iterator[list[Forward]]:
    """Record the forward passes of all encoders inside, operation by operation."""
    found: list[Forward] = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, Encoder):
            gradient = torch.is_grad_enabled() and any(
                parameter.requires_grad for parameter in module.parameters()
            )
            half = torch.is_autocast_enabled(device.type)
            found.append(Forward(_images(inputs[0]), gradient, module.training, half))

    hook = register_module_forward_pre_hook(note)
    try:
        yield found
    finally:
        hook.remove()


def _images(inputs: Tensor) -> int:
    """Number of images (n, 3, height, width); where torch.func maps over them, all of them."""
    return torch.func.debug_unwrap(inputs).numel() // inputs.shape[1:].numel()


def work(forwards: Sequence[Forward], flops_of_an_image: int) -> int:
    """Floating-point operations of forward and backward passes."""
    return sum(
        passed.images * flops_of_an_image * (1 + BACKWARD * passed.gradient) for passed in forwards
    )


def network_alone(
    method: AnyMethod, engine: Engine, forwards: Sequence[Forward]
) -> Callable[[], None]:
    """Return a step of the encoder alone: these forward passes and one backward pass of all.

    The loss is the mean of squared features; a graph repeats it where the engine is one.
    """
    context = method.context
    device, half = context.device, context.autocast
    encoder = deepcopy(method.network.encoder).requires_grad_(True)
    if engine == "compile":
        encoder.compile(dynamic=True)
    generator = torch.Generator(device).manual_seed(0)
    inputs = [
        torch.randn(
            passed.images, *context.image_shape, generator=generator, device=device
        ).contiguous(memory_format=torch.channels_last)
        for passed in forwards
    ]

    def step() -> None:
        encoder.zero_grad(set_to_none=True)
        losses = []
        with torch.autocast(device.type, enabled=False):  # the passes share rounded weights
            for images, passed in zip(inputs, forwards, strict=True):
                with (
                    torch.set_grad_enabled(passed.gradient),
                    torch.autocast(device.type, dtype=half, enabled=passed.half),
                ):
                    features = encoder.train(passed.training)(images)
                if passed.gradient:
                    losses.append(features.float().square().mean())
        if losses:
            torch.stack(losses).sum().backward()

    for _ in range(2):
        step()
    return _Graph(step) if engine == "graph" and forwards else step


class _Graph:
    """A step as a graph, which reads and writes the tensors that the step holds."""

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step
        self.graph = torch.cuda.CUDAGraph()
        with capture(self.graph):
            step()

    def __call__(self) -> None:
        self.graph.replay()
