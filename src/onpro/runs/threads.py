"""Number of CPU threads of a run, which changes the order of sums and so the last digits."""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from onpro.errors import UserError
from onpro.runs.files import read_json

THREADS = 1
"""Default number of threads of a run on a CPU.

It does not depend on the number of cores or workers, so that the result does not either. Networks
and images small enough for a CPU gain little from more."""

MOST_THREADS = 64
"""Most threads of a run on a machine with fewer CPUs: enough to repeat a run of a larger one."""


def threads_of(folder: Path) -> int | None:
    """Return the number of threads a run was started with, None if unknown."""
    try:
        noted = read_json(folder / "config.json")["hardware"]["threads"]
    except (UserError, OSError, KeyError, TypeError):
        return None
    return noted if type(noted) is int and noted >= 1 else None


def unequal_threads(results: Iterable[Mapping[str, Any]]) -> str:
    """Return a clause for a warning if the runs differ in their number of threads, else ""."""
    on_cpu = (result["hardware"] for result in results if result["device"] == "cpu")
    numbers = {str(hardware.get("threads")) for hardware in on_cpu}
    if len(numbers) < 2:
        return ""
    return f"with {' and '.join(sorted(numbers))} threads, which changes the last digits"


def require_threads(number: int | None, *, here: bool = True) -> None:
    """Raise UserError if a number of threads is not positive, or brings this machine to a halt.

    Args:
        number: The number; None for the default.
        here: Whether the threads are to run on this machine.
    """
    if number is not None and number < 1:
        raise UserError(f"a run takes at least 1 thread, not {number}.")
    most = max(MOST_THREADS, os.cpu_count() or 1)
    if here and number is not None and number > most:
        raise UserError(f"a run takes at most {most} threads on this machine, not {number}.")


@contextmanager
def cpu_threads(number: int) -> Iterator[None]:
    """Set the number of threads of torch inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
