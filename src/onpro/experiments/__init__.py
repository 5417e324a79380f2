"""Many runs: configurations, recipes, run folders, statistics."""

from onpro.experiments.config import RunConfig, read_config
from onpro.experiments.files import require_writable
from onpro.experiments.recipes import Recipe, data_values, recipes, settings_for
from onpro.experiments.run import Finished, Interrupted, finished, finished_in, prepare, run, run_in
from onpro.experiments.statistics import Summary, summarise

__all__ = [
    "Finished",
    "Interrupted",
    "Recipe",
    "RunConfig",
    "Summary",
    "data_values",
    "finished",
    "finished_in",
    "prepare",
    "read_config",
    "recipes",
    "require_writable",
    "run",
    "run_in",
    "settings_for",
    "summarise",
]
