"""Numerical precision of the losses: float32 or better, whatever that of the network."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

MASKED_LOGIT = -1e30
"""Value of masked logits. It is finite, so a row of masked logits has a finite logarithm and a zero
gradient instead of NaN."""

P = ParamSpec("P")
R = TypeVar("R")


def float32(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a loss to run outside autocast, with half-precision arguments cast to float32.

    Near a similarity of 1, the resolution of bfloat16 is about 0.008; divided by a temperature of
    0.07, that is an error of 0.1 in a logit.
    """

    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> R:
        given = (*args, *kwargs.values())
        device = next(a.device.type for a in given if isinstance(a, Tensor))
        with torch.autocast(device, enabled=False):
            return function(
                *(_cast_up(a) for a in args),  # type: ignore[arg-type] # same types, wider floats
                **{name: _cast_up(a) for name, a in kwargs.items()},  # type: ignore[arg-type] # too
            )

    return inner


def _cast_up(value: object) -> object:
    if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
        return value.float()
    return value
