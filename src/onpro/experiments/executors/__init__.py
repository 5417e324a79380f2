"""Executors, which start runs somewhere, and `execute`, which has them train many."""

from onpro.experiments.executors.base import (
    Executor,
    Job,
    JobResult,
    RunEvent,
    RunRequest,
    execute,
    requests,
)
from onpro.experiments.executors.local import Local

__all__ = [
    "Executor",
    "Job",
    "JobResult",
    "Local",
    "RunEvent",
    "RunRequest",
    "execute",
    "requests",
]
