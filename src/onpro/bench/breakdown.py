"""Time of each part of a step, measured by torch's profiler."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle, islice
from typing import Any, Protocol
from unittest.mock import patch

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.profiler import ProfilerActivity, profile, record_function

from onpro.augment import OnPixels
from onpro.bench.clock import wait
from onpro.memory import reservoir, retrieval
from onpro.methods.base import Labelled
from onpro.methods.registry import AnyMethod
from onpro.nn import Encoder
from onpro.streams import Batch
from onpro.training.stepper import Stepper

PARTS = ("augment", "forward", "backward", "losses", "memory", "optimizer")
"""Losses are whatever is none of the others."""

MARK = "part of a step: "
AUTOGRAD = "autograd::engine::evaluate_function"


class Event(Protocol):
    """What this needs of an event of torch's profiler."""

    name: str
    kernels: Sequence[Any]
    device_type: Any
    cpu_parent: Any

    @property
    def self_cpu_time_total(self) -> float: ...  # noqa: D102 # torch says it


def breakdown(stepper: Stepper, batches: Sequence[Batch], steps: int) -> dict[str, float]:
    """Milliseconds of each part of a step, mean of some steps.

    On a GPU these are the times its kernels run, without the gaps between them; on a CPU the times
    of operations and of the Python between them. The profiler makes both a bit longer.
    """
    method = stepper.method
    device = method.context.device
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with _marked(method), profile(activities=activities, acc_events=True) as profiler:
        for batch in islice(cycle(batches), steps):
            with record_function("step"):
                stepper.step(batch)
        wait(device)
    spent = attributed(profiler.events() or (), on_gpu=device.type == "cuda")
    return {part: spent[part] / 1000 / steps for part in PARTS}


def attributed(events: Sequence[Event], *, on_gpu: bool) -> dict[str, float]:
    """Microseconds of events by part."""
    spent: defaultdict[str, float] = defaultdict(float)
    for event in events:
        if event.device_type.name == "CPU":
            spent[part_of(event)] += _kernel_time(event) if on_gpu else event.self_cpu_time_total
    return spent


def part_of(event: Event) -> str:
    """Return the outermost part of a step that an event is in; what autograd calls is backward."""
    part, ancestor = "losses", event
    while ancestor is not None:
        if ancestor.name.startswith(MARK):
            part = ancestor.name.removeprefix(MARK)
        elif ancestor.name.startswith(AUTOGRAD):
            part = "backward"
        ancestor = ancestor.cpu_parent
    return part


def _kernel_time(event: Event) -> float:
    """Time of the kernels an operation started itself.

    A range has its own extent on the GPU among them, under its own name.
    """
    return float(sum(kernel.duration for kernel in event.kernels if kernel.name != event.name))


@contextmanager
def _marked(method: AnyMethod) -> Iterator[None]:
    """Mark what the building blocks of a method and its peers do, for the profiler."""
    blocks: list[tuple[Any, str, Sequence[str]]] = []
    for learner in method.learners:
        blocks += [
            (learner, "augment", ("augment", "normalise")),
            (getattr(learner, "contrast", None), "augment", ("rotate",)),  # of OCM and OnPro
            (learner.network, "forward", ("features", "features_each")),
            (learner, "forward", ("eval_features",)),
            (learner, "backward", ("backward",)),
            (learner, "optimizer", ("step",)),
            (learner, "memory", ("sample_replay",)),
        ]
    blocks += [
        (Labelled, "augment", ("rotated",)),
        (OnPixels, "augment", ("__call__",)),  # of wrappers, which have augmentations of their own
        (method.memory, "memory", ("take", "write", "advance", "update", "sample")),
        (reservoir, "memory", ("sample_slots_batch", "sample_slots_sequential", "store")),
        (retrieval, "memory", ("uniform", "where", "per_class", "of_classes", "class_counts")),
    ]
    with ExitStack() as stack:
        for holder, part, names in blocks:
            for name in names:
                if call := getattr(holder, name, None):
                    stack.enter_context(patch.object(holder, name, _marked_call(call, part)))
        stack.enter_context(_marked_encoders())
        yield


def _marked_call(call: Callable[..., Any], part: str) -> Callable[..., Any]:
    def marked(*arguments: Any, **named: Any) -> Any:
        with record_function(MARK + part):
            return call(*arguments, **named)

    return marked


@contextmanager
def _marked_encoders() -> Iterator[None]:
    """Mark forward passes that take another way than `encode`: a copy's, a virtual step's."""
    open_ranges: list[record_function] = []

    def begin(module: nn.Module, inputs: Any) -> None:
        if isinstance(module, Encoder):
            open_ranges.append(record_function(MARK + "forward").__enter__())

    def end(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(module, Encoder):
            open_ranges.pop().__exit__(None, None, None)

    hooks = register_module_forward_pre_hook(begin), register_module_forward_hook(end)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
