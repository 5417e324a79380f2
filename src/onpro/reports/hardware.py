"""What runs were computed on, in words."""

from collections.abc import Mapping
from typing import Any


def machine(hardware: Mapping[str, Any]) -> str:
    """The GPU, or that it was the CPU and how much of it.

    >>> machine({"cpu": "x86_64", "threads": 1})
    'CPU, 1 thread'
    """
    if hardware.get("gpu"):
        return str(hardware["gpu"])
    threads = hardware.get("threads", "?")
    return f"CPU, {threads} thread{'' if threads == 1 else 's'}"
