"""Upgrade and validate the state of a saved classifier.

A checksum proves that a file is as it was written, not that its content makes sense.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor, nn

from onpro.errors import UserError
from onpro.inputs import MAX_PIXELS, can_be_saved
from onpro.memory import Memory
from onpro.memory.per_class import PerClassMemory
from onpro.memory.task_images import TaskImages
from onpro.methods.former import settings_of_today
from onpro.methods.registry import AnyMethod, method
from onpro.nn import Encoder
from onpro.nn.pretrained import own_rate
from onpro.streams import Progress
from onpro.training.stepper import equal

MAX_COUNT = 2**53
"""Of what is counted: images, steps."""

MOVED_SETTINGS = {"distillation": (0.0, "kd"), "rotations": (1, "rot")}
"""Settings of version 1 that are wrappers now: the value that switches them off, the wrapper."""

AVERAGES: dict[type[torch.optim.Optimizer], set[str]] = {
    torch.optim.SGD: {"momentum_buffer"},
    torch.optim.Adam: {"step", "exp_avg", "exp_avg_sq"},
}
"""What an optimizer keeps of each parameter."""


class UnsoundError(ValueError):
    """Parts of a saved classifier do not fit together."""


def require(holds: bool, part: str) -> None:
    """Refuse a saved classifier unless the condition on one of its parts holds."""
    if not holds:
        raise UnsoundError(part)


def upgraded(state: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the content of a file of any version to that of the newest.

    Raises:
        UserError: if its method is not known.
        ValueError: if a setting it was trained with no longer exists.
    """
    state = dict(state) if state["version"] > 1 else _from_version_1(state)
    params = state["params"]
    try:
        method(params["method"])
    except UserError as error:
        hint = "Import a file of yours that has it first: onpro.methods.load_file(PATH)."
        raise UserError(f"{error} {hint}") from None
    return state | {"params": settings_of_today(params["method"], params)}


def _from_version_1(state: Mapping[str, Any]) -> dict[str, Any]:
    """Version 1 counted the classes before a task, which were numbered by arrival.

    Forgotten classes counted as seen, and still do in some files of version 2.
    """
    params, learner = dict(state["params"]), state["learner"]
    name = params["method"]
    if name in ("er", "aser", "scr", "dvc"):
        for setting, (off, wrapper) in MOVED_SETTINGS.items():
            value = params.pop(setting, off)
            if isinstance(value, bool) or value != off:
                raise ValueError(
                    f"the setting {setting}={value!r} of {name} is now a method of its own: train "
                    f"{name}-{wrapper} from scratch, or load the file with the onpro that saved it"
                )
    if learner is not None:
        method = dict(learner["method"])
        progress = dict(method["progress"])
        seen, before = progress["seen"], progress.pop("classes_before_task")
        require(_is_count(before) and before <= len(seen), "progress")
        known = set(learner["outputs"])
        method["progress"] = progress | {
            "seen": [label for label in seen if label in known],
            "seen_before_task": [label for label in sorted(seen)[:before] if label in known],
        }
        if name == "onpro":
            method["old_classes"] = torch.arange(len(method["prototypes"])) < before
        if name == "pass":
            method["memory"] = {
                "capacity": 0,
                "seen": 0,
                "images": torch.zeros((0, *learner["image_shape"]), dtype=torch.uint8),
                "labels": torch.zeros(0, dtype=torch.int64),
                "fields": {},
            }
        learner = {**learner, "method": method}
    return {**state, "params": params, "learner": learner}


def check_file(state: Mapping[str, Any]) -> None:
    """Refuse a state that is not the content of a classifier's file."""
    require(set(state) == {"version", "params", "learner"}, "its parts")
    params, learner = state["params"], state["learner"]
    require(not any(tensor.is_complex() for tensor in _tensors(state)), "its tensors")
    require(type(params) is dict and all(type(name) is str for name in params), "its parameters")
    require("device" not in params, "its parameters")
    if learner is not None:
        require(type(learner) is dict and type(learner.get("labels")) is list, "what was learned")
        labels = learner["labels"]
        require(all(map(can_be_saved, labels)) and len(set(labels)) == len(labels), "the labels")


def check_model(state: Mapping[str, Any], image_size: int | None) -> None:
    """Refuse a state that is not that of a `FittedModel`; `check_method` checks its method.

    Args:
        state: The saved state.
        image_size: Side to which every image is resized, if any.
    """
    names = {"image_shape", "device", "labels", "outputs", "taken", "seen", "method"}
    require(set(state) == names, "the model's parts")
    shape = state["image_shape"]
    require(
        type(shape) is tuple and len(shape) == 3 and all(_is_count(side) for side in shape),
        "the images' shape",
    )
    channels, height, width = shape
    require(channels == 3 and 1 <= height * width <= MAX_PIXELS, "the images' shape")
    require(image_size in (None, height) and image_size in (None, width), "the images' shape")
    require(state["device"] in ("cpu", "cuda"), "the device")
    require(_is_count(state["taken"]) and _is_count(state["seen"]), "the counters")
    labels, outputs = state["labels"], state["outputs"]
    require(type(outputs) is list and all(_is_count(k) for k in outputs), "the outputs")
    require(outputs == sorted(set(outputs)) and len(outputs) == len(labels), "the outputs")
    require(all(k < state["taken"] for k in outputs), "the outputs")
    method = state["method"]
    require(type(method) is dict and type(method.get("random")) is dict, "the method's state")
    require(type(method.get("scaler")) is dict, "the method's state")
    for part in method.values():
        if type(part) is dict and "param_groups" in part:
            averages = part["state"].values()
            require(all(type(average) is dict for average in averages), "the optimizer's averages")


def check_method(method: AnyMethod, saved: Mapping[str, Any], learner: Mapping[str, Any]) -> None:
    """Refuse a method that has loaded a state, but differs from it or is not sound.

    Args:
        method: The method.
        saved: Its saved state.
        learner: The state of the model it belongs to, already checked.
    """
    now = method.state_dict()
    require(saved.keys() == now.keys(), "the method's parts")
    for name, value in saved.items():
        if isinstance(getattr(method, name), torch.optim.Optimizer):
            _check_optimizer(getattr(method, name), value, name)
        else:
            require(equal(value, now[name]), name)
    _check_averages(method)
    _check_progress(method.progress)
    classes, in_use = method.network.classes, set(learner["outputs"])
    require(in_use <= method.progress.seen <= set(range(classes)), "the classes")
    require(learner["taken"] <= classes, "the classes")
    require(not classes or "growth" in saved["random"], "the random generators")
    for part in vars(method).values():
        if isinstance(part, (Memory, PerClassMemory)):
            require(set(part.labels.tolist()) <= in_use, "the memory's labels")
            require(len(part.labels) <= int(part.seen) <= learner["seen"], "the memory's counters")
        if isinstance(part, TaskImages):
            labels = (label for batch in part.state_dict()["labels"] for label in batch.tolist())
            require(set(labels) <= in_use, "the task's labels")


def _check_progress(progress: Progress) -> None:
    for field in fields(progress):
        value = getattr(progress, field.name)
        if field.name in ("seen", "seen_before_task"):
            require(all(map(_is_count, value)), "progress")
        elif field.name == "task_open":
            require(type(value) is bool, "progress")
        elif field.name == "announced":
            require(value is None, "progress")
        else:
            require(_is_count(value) or (field.name == "task" and equal(value, -1)), "progress")
    require(progress.steps_in_task <= progress.steps, "progress")
    require(progress.task < progress.steps or progress.task <= 0, "progress")
    before, since = progress.seen_before_task, progress.seen - progress.seen_before_task
    require(before <= progress.seen, "progress")
    # A classifier numbers classes by arrival.
    require(not before or not since or max(before) < min(since), "progress")


def _check_optimizer(optimizer: torch.optim.Optimizer, saved: Mapping[str, Any], name: str) -> None:
    """Refuse settings other than the method's, and averages that do not fit the parameters.

    The saved settings of a group are not compared: another version of torch may have more of them.
    """
    now = optimizer.state_dict()
    require(saved.keys() == now.keys() and equal(saved["state"], now["state"]), name)
    for group, old in zip(now["param_groups"], saved["param_groups"], strict=True):
        require(equal(group["params"], old["params"]), name)
        require(group.keys() >= optimizer.defaults.keys(), name)
        rate = group["lr"]  # a method may have a schedule
        require(type(rate) is float and 0 <= rate < math.inf, name)
        for setting in optimizer.defaults.keys() - {"lr"}:
            require(equal(group[setting], optimizer.defaults[setting]), name)
    expected = next((kept for kind, kept in AVERAGES.items() if isinstance(optimizer, kind)), None)
    for parameter, averages in optimizer.state.items():
        require(expected is None or set(averages) == expected, name)
        for kind, average in averages.items():
            # A fused step reads and writes as far as the parameter goes.
            shape = () if kind == "step" else parameter.shape
            require(isinstance(average, Tensor) and average.shape == shape, name)
            require(average.dtype == parameter.dtype, name)
        if "step" in averages:
            require(bool(0 <= averages["step"] < MAX_COUNT), name)
            require(not bool((averages["exp_avg_sq"] < 0).any()), name)


def _check_averages(method: AnyMethod) -> None:
    """Refuse averages of a part of a module, and any without those of the encoder."""
    averaged = set(method.optimizer.state)
    modules = [part for part in vars(method).values() if isinstance(part, nn.Module)]
    for child in (child for module in modules for child in module.children()):
        trained = [parameter in averaged for parameter in _trained_from_scratch(child)]
        require(all(trained) or not any(trained), "the optimizer's averages")
    encoder = set(_trained_from_scratch(method.network.encoder))
    require(not averaged or encoder <= averaged, "the optimizer's averages")


def _trained_from_scratch(module: nn.Module) -> Iterator[nn.Parameter]:
    """Parameters without those of pretrained and of foreign encoders: some may not be in use."""
    foreign = {
        parameter
        for part in module.modules()
        if isinstance(part, Encoder) and not type(part).__module__.startswith("onpro.")
        for parameter in part.parameters()
    }
    return (p for p in module.parameters() if own_rate(p) is None and p not in foreign)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < MAX_COUNT
