"""Number of CPU threads of a run: sums are grouped by it, so it changes the last digits."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from onpro.errors import UserError
from onpro.runs.files import read_json

THREADS = 1
"""Threads of a run on a CPU unless somebody says otherwise.

Wherever a run is trained, by `onpro run` or by one of many workers, on few cores or on many, its
result is the same. Networks and images that a CPU can train gain little from more."""


def threads_of(folder: Path) -> int | None:
    """How many threads a run began with; None where that is not known."""
    try:
        noted = read_json(folder / "config.json")["hardware"]["threads"]
    except (UserError, OSError, KeyError, TypeError):
        return None
    return noted if type(noted) is int and noted >= 1 else None


def unequal_threads(results: Iterable[Mapping[str, Any]]) -> str:
    """A sentence if runs of one experiment had different numbers of threads, else nothing."""
    on_cpu = (result["hardware"] for result in results if result["device"] == "cpu")
    numbers = {str(hardware.get("threads")) for hardware in on_cpu}
    if len(numbers) < 2:
        return ""
    return f"with {' and '.join(sorted(numbers))} threads, which changes the last digits"


def require_threads(number: int | None) -> None:
    """Refuse a number of threads that is none."""
    if number is not None and number < 1:
        raise UserError(f"a run takes at least 1 thread, not {number}.")


@contextmanager
def cpu_threads(number: int) -> Iterator[None]:
    """Compute with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
