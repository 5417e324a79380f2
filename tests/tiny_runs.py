"""Runs that take a fraction of a second, and what of their results can be compared."""

import json
from collections.abc import Mapping
from typing import Any

from onpro.methods import settings_for
from onpro.runs import RunConfig
from onpro.runs.schema import checksum

ER = RunConfig(
    method="er",
    settings=settings_for("er", "tiny"),
    data="tiny",
    memory=20,
    limit_per_class=8,
    device="cpu",
)
"""Six steps in three tasks."""

CHANGING = {
    "train_seconds",
    "eval_seconds",
    "elapsed_seconds",
    "shared_by",
    "gpu_processes",
    "started",
    "command",
    "commit",
    "checksum",
}
"""What differs between two runs of one configuration: times, commands, checksums of results, and
the commit, which says whether files were changed meanwhile."""


def lasting(values: Mapping[str, Any]) -> dict[str, Any]:
    """A result, an event or a state without what differs from run to run."""
    return {name: value for name, value in values.items() if name not in CHANGING}


def sealed(result: Mapping[str, Any], **changes: Any) -> str:
    """The text of a `result.json` with some values changed, whose checksum is right."""
    changed = {**result, **changes}
    return json.dumps(changed | {"checksum": checksum(changed)})
