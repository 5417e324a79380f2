"""Many runs: configurations, run folders, statistics."""

from onpro.experiments.config import RunConfig, read_config
from onpro.experiments.files import require_writable
from onpro.experiments.run import (
    Finished,
    Interrupted,
    SharedImages,
    finished,
    finished_in,
    load_images,
    prepare,
    run,
    run_in,
    running,
)
from onpro.experiments.side_by_side import room_for_runs, side_by_side
from onpro.experiments.statistics import Summary, summarise

__all__ = [
    "Finished",
    "Interrupted",
    "RunConfig",
    "SharedImages",
    "Summary",
    "finished",
    "finished_in",
    "load_images",
    "prepare",
    "read_config",
    "require_writable",
    "room_for_runs",
    "run",
    "run_in",
    "running",
    "side_by_side",
    "summarise",
]
