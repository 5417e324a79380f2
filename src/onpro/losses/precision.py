"""Losses are computed in float32 or better whatever the precision of the network."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

NEVER = -1e30
"""A logit that does not count; finite, so that a row of nothing else has a finite logarithm and a
zero gradient, not NaN."""

P = ParamSpec("P")
R = TypeVar("R")


def at_least_float32(values: Tensor) -> Tensor:
    """Half-precision values cast up to float32, others as they are."""
    half = values.dtype in (torch.float16, torch.bfloat16)
    return values.float() if half else values


def float32(function: Callable[P, R]) -> Callable[P, R]:
    """Run a loss outside autocast, with its half-precision arguments cast up.

    At a similarity near 1, bfloat16 resolves about 0.008; after the division by a temperature
    of 0.07 that is an error of 0.1 in a logit.
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
    return at_least_float32(value) if isinstance(value, Tensor) else value
