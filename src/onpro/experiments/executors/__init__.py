"""Executors, which start runs on some machine, and `execute`, which trains many runs on one."""

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
