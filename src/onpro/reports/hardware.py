"""What runs were computed on, in words."""

from collections.abc import Mapping
from typing import Any


def machine(hardware: Mapping[str, Any]) -> str:
    """The GPU, or that it was the CPU and how much of it.

    >>> machine({"cpu": "x86_64", "threads": 1})
    'CPU, 1 thread'
    """
    threads = hardware["threads"]
    return str(hardware.get("gpu") or f"CPU, {threads} thread{'' if threads == 1 else 's'}")
