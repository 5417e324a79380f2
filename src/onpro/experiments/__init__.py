"""Many runs: configurations, recipes, run folders, statistics."""

from onpro.experiments.config import RunConfig, read_config
from onpro.experiments.files import require_writable
from onpro.experiments.recipes import Recipe, data_values, recipes, settings_for
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
    "Recipe",
    "RunConfig",
    "SharedImages",
    "Summary",
    "data_values",
    "finished",
    "finished_in",
    "load_images",
    "prepare",
    "read_config",
    "recipes",
    "require_writable",
    "room_for_runs",
    "run",
    "run_in",
    "running",
    "settings_for",
    "side_by_side",
    "summarise",
]
