"""A pretended GPU: tensors that claim to be on one, with shapes and types but without values.

Operations on them check devices as on a GPU. Whatever needs a value on the host raises an error,
which on a GPU would be a host–device sync.
"""

import copy
import copyreg
import functools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

DEVICE = torch.device("cuda:0")

T = TypeVar("T")


class BlockingCopyError(Exception):
    """A copy between host and device, for which the host waits."""


class PretendedGenerator(torch.Generator):
    """A generator of random numbers that claims to be on the GPU."""

    def __new__(cls, device: torch.device | None = None) -> "PretendedGenerator":
        return super().__new__(cls)

    @property
    def device(self) -> torch.device:  # type: ignore[override] # torch does not assign to it
        return DEVICE


class PretendedGPU(FakeTensorMode):
    """Computes the devices, shapes and types of tensors; `strict` refuses blocking copies."""

    strict = False

    def __init__(self) -> None:
        super().__init__(allow_fallback_kernels=False)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[Any], args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = func.overloadpacket.__name__
        if name.startswith("_fused_"):  # an optimizer's step, which changes values alone
            return None
        if name in ("exponential_", "_standard_gamma"):  # torch may know no shapes for them
            return args[0] if name.endswith("_") else torch.empty_like(args[0])
        if self.strict and name in ("_to_copy", "copy_"):
            source = args[1] if name == "copy_" else args[0]
            target = args[0].device if name == "copy_" else kwargs.get("device") or source.device
            blocking = not (kwargs or {}).get("non_blocking")
            if blocking and source.dim() and source.device.type != torch.device(target).type:
                raise BlockingCopyError(f"a copy from {source.device} to {target}")
        return super().__torch_dispatch__(func, types, args, kwargs)

    def move(self, thing: T) -> T:
        """A copy of an object whose tensors, devices and generators are those of the GPU."""

        def moved(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
            if id(tensor) not in memo:
                with self:
                    there = torch.empty_strided(
                        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=DEVICE
                    )
                there = nn.Parameter(there) if isinstance(tensor, nn.Parameter) else there
                memo[id(tensor)] = there.requires_grad_(tensor.requires_grad)
            found: Tensor = memo[id(tensor)]
            return found

        moves: dict[type, Any] = {
            torch.device: lambda _: (torch.device, (str(DEVICE),)),
            torch.Generator: lambda _: (PretendedGenerator, ()),
        }
        with (
            patch.object(Tensor, "__deepcopy__", moved),
            patch.object(nn.Parameter, "__deepcopy__", moved),
            patch.dict(copyreg.dispatch_table, moves),
        ):
            return copy.deepcopy(thing)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Compute with it inside; gradients have the shapes of their parameters."""
        _forget_constants()
        try:
            with (
                self,
                patch.object(Tensor, "backward", _backward),
                patch("torch.autograd.grad", _gradients),
                patch("torch.Generator", PretendedGenerator),
            ):
                yield
        finally:
            _forget_constants()


def _backward(loss: Tensor) -> None:
    """Give every parameter that the loss depends on a gradient."""
    for function in _functions(loss):
        if (parameter := getattr(function, "variable", None)) is not None:
            parameter.grad = torch.empty_like(parameter)


def _gradients(loss: Tensor, inputs: Iterable[Tensor], **_: Any) -> tuple[Tensor | None, ...]:
    """A gradient for each input that the loss depends on, as `torch.autograd.grad`."""
    functions = _functions(loss)
    leaves = {id(getattr(function, "variable", None)) for function in functions}
    return tuple(
        torch.empty_like(x) if id(x) in leaves or x.grad_fn in functions else None for x in inputs
    )


def _functions(loss: Tensor) -> set[Any]:
    """The functions of autograd that the loss was computed by."""
    found: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        function = waiting.pop()
        if function is not None and function not in found:
            found.add(function)
            waiting += [before for before, _ in function.next_functions]
    return found


def _forget_constants() -> None:
    """Clear the caches of the package: they hold tensors by device."""
    modules = [module for name, module in sys.modules.items() if name.startswith("onpro.")]
    for thing in [value for module in modules for value in vars(module).values()]:
        if type(thing) is functools._lru_cache_wrapper:
            thing.cache_clear()
