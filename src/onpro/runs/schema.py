"""Validate the content of `result.json`."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from onpro.training import CueMetrics
from onpro.training.evaluation import CueRates

LARGEST = 1e15
"""No measured number is larger; what is would not survive in every program that reads it."""


def checksum(result: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a result, independent of the layout of its file."""
    content = {name: value for name, value in result.items() if name != "checksum"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fault(result: Any) -> str | None:
    """Return what is wrong with a result, as a clause; None if it can be used."""
    if not isinstance(result, dict):
        return "result.json does not hold a result"
    if "checksum" in result and result["checksum"] != checksum(result):
        return "result.json has been changed or damaged: its content does not match its checksum"
    missing = [name for name in NEEDED if name not in result]
    if missing:
        return f"result.json lacks {', '.join(missing)}"
    kinds = NEEDED | {name: kind for name, kind in OPTIONAL.items() if name in result}
    unusable = [name for name, is_right in kinds.items() if not is_right(result[name])]
    if unusable:
        return f"result.json has an unusable value of {', '.join(unusable)}"
    by_class: dict[str, list[Any]] = {
        "classes": [result["classes"]] if "classes" in result else [],
        **{name: list(filter(None, result.get(name, ()))) for name in OVER_TIME},
    }
    for name, rows in by_class.items():
        if any(len(row) != len(result["confusion"]) for row in rows):
            return f"result.json has not as many classes in {name} as in confusion"
    return None


def _is_text(value: Any) -> bool:
    """Return whether it is a string that can be encoded: half a surrogate pair cannot."""
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def is_number(value: Any) -> bool:
    """Return whether it is a finite number; comparisons with NaN are false."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and -LARGEST <= value <= LARGEST


def is_amount(value: Any) -> bool:
    """Return whether it is a finite number of at least 0."""
    return is_number(value) and value >= 0


def is_whole(value: Any) -> bool:
    """Return whether it is an integer of at least 0 that fits into 63 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _is_count(value: Any) -> bool:
    """Return whether it is an integer of at least 1 that fits into 63 bits."""
    return is_whole(value) and value >= 1


def _is_accuracy(value: Any) -> bool:
    """Return whether it is T×T with percentages up to the diagonal."""
    return _is_square(value) and all(
        _are_amounts(row[: task + 1], 100.0) for task, row in enumerate(value)
    )


def _is_confusion(value: Any) -> bool:
    """Return whether it is a square matrix of numbers from 0; fast, as it may have a million."""
    if not _is_square(value):
        return False
    try:
        cells = np.asarray(value)
    except (ValueError, OverflowError):  # not all cells are single numbers
        return False
    return cells.dtype.kind in "iuf" and bool((cells >= 0).all() and (cells <= LARGEST).all())


def _is_square(value: Any) -> bool:
    """Return whether it is a square list of lists with at least one row."""
    is_list = isinstance(value, list) and bool(value)
    return is_list and all(isinstance(row, list) and len(row) == len(value) for row in value)


def _are_amounts(cells: list[Any], highest: float) -> bool:
    """Return whether all are numbers from 0 to the highest."""
    is_numeric = set(map(type, cells)) <= {int, float}
    return is_numeric and is_amount(sum(cells)) and min(cells) >= 0 and max(cells) <= highest


def _is_percentage(value: Any) -> bool:
    return is_amount(value) and value <= 100


def _is_curve(value: Any) -> bool:
    """Return whether it is a list of evaluations at increasing steps."""
    if not isinstance(value, list) or not value:
        return False
    if not all(isinstance(p, dict) and is_whole(p.get("step")) for p in value):
        return False
    steps = [point["step"] for point in value]
    return sorted(set(steps)) == steps and all(
        is_whole(point.get("images")) and _is_percentage(point.get("accuracy")) for point in value
    )


def _are_lists(value: Any, is_right: Callable[[Any], bool]) -> bool:
    """Return whether it is a list of lists whose items are all right."""
    return isinstance(value, list) and all(
        isinstance(row, list) and all(map(is_right, row)) for row in value
    )


def _is_prototypes(value: Any) -> bool:
    """Return whether it is what `onpro.runs.probes.PrototypeProbe` measured."""
    if not isinstance(value, dict) or value.get("space") not in ("projection", "features"):
        return False
    if not _are_lists([value.get(name) for name in ("step", "task")], is_whole):
        return False
    if not _are_lists([value.get(name) for name in ("old", "new")], _is_cosine):
        return False
    return len({len(value[name]) for name in ("step", "task", "old", "new")}) == 1


def _is_cosine(value: Any) -> bool:
    """Return whether it is a cosine up to rounding, or None."""
    return value is None or (is_number(value) and abs(value) <= 1.01)


def _are_cues(value: Any) -> bool:
    """Return whether it is a T×T matrix of percentages for each rate."""
    names = CueRates._fields
    return isinstance(value, dict) and all(_is_accuracy(value.get(name)) for name in names)


def _is_hardware(value: Any) -> bool:
    return isinstance(value, dict) and (_is_text(value.get("gpu")) or "threads" in value)


def _is_versions(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_text(value.get(name)) for name in ("torch", "python")
    )


OVER_TIME = ("class_accuracy", "memory_content")
"""Fields with a value of each class at each evaluation; a row is empty where it is unknown."""

NEEDED: dict[str, Callable[[Any], bool]] = {
    "method": _is_text,
    "data": _is_text,
    "memory": is_whole,
    "seed": is_whole,
    "accuracy": _is_accuracy,
    "average_accuracy": is_number,
    "average_forgetting": is_number,
    "average_forgetting_strict": is_number,
    "average_incremental_accuracy": is_number,
    "confusion": _is_confusion,
    "train_seconds": is_amount,
    "eval_seconds": is_amount,
    "steps": _is_count,
    "images_seen": is_whole,
    "device": _is_text,
    "hardware": _is_hardware,
    "precision": _is_text,
    "versions": _is_versions,
}

OPTIONAL: dict[str, Callable[[Any], bool]] = {
    "recipe": lambda value: value is None or _is_text(value),
    "encoder_start": lambda value: value in ("scratch", "pretrained"),
    "encoder_sha256": _is_text,
    "engine": _is_text,
    "classes": lambda value: isinstance(value, list) and all(isinstance(v, str) for v in value),
    "anytime_accuracy": _is_percentage,
    "last_accuracy": _is_percentage,
    "curve": _is_curve,
    "class_accuracy": lambda value: _are_lists(value, lambda v: v is None or _is_percentage(v)),
    "memory_content": lambda value: _are_lists(value, is_whole),
    "prototypes": _is_prototypes,
    "cues": _are_cues,
    **dict.fromkeys((field.name for field in fields(CueMetrics)), is_number),
    "shared_by": _is_count,
    "gpu_processes": lambda value: value is None or _is_count(value),
}
