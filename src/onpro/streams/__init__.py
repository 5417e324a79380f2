"""Streams, which yield batches of images in the order of arrival.

Importing this package imports the kinds of streams, but not torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from onpro.streams.kinds import (
    Blurry,
    Disjoint,
    Gaussian,
    IBlurry,
    LongTail,
    Random,
    Repeating,
)
from onpro.streams.progress import Progress
from onpro.streams.registry import StreamKind, find_kind, register, stream_kind, stream_kinds
from onpro.streams.shortcut import ShortcutSettings

if TYPE_CHECKING:
    from onpro.streams.class_incremental import ClassIncremental, ClassOrder
    from onpro.streams.stream import Batch, Benchmark, State

__all__ = [
    "Batch",
    "Benchmark",
    "Blurry",
    "ClassIncremental",
    "ClassOrder",
    "Disjoint",
    "Gaussian",
    "IBlurry",
    "LongTail",
    "Progress",
    "Random",
    "Repeating",
    "ShortcutSettings",
    "State",
    "StreamKind",
    "find_kind",
    "register",
    "stream_kind",
    "stream_kinds",
]

_MODULES = {
    **dict.fromkeys(("ClassIncremental", "ClassOrder"), "onpro.streams.class_incremental"),
    **dict.fromkeys(("Batch", "Benchmark", "State"), "onpro.streams.stream"),
}

if not TYPE_CHECKING:  # a checker of types would take every name to exist

    def __getattr__(name: str) -> Any:
        """Import what needs torch when it is asked for, so that lists of streams do not."""
        if name in _MODULES:
            value = globals()[name] = getattr(import_module(_MODULES[name]), name)
            return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
