"""Many runs: configurations, recipes, run folders, statistics."""

from onpro.experiments.config import RunConfig
from onpro.experiments.files import require_writable
from onpro.experiments.recipes import Recipe, data_values, recipes, settings_for
from onpro.experiments.run import Finished, finished, prepare, run
from onpro.experiments.statistics import Summary, summarise

__all__ = [
    "Finished",
    "Recipe",
    "RunConfig",
    "Summary",
    "data_values",
    "finished",
    "prepare",
    "recipes",
    "require_writable",
    "run",
    "settings_for",
    "summarise",
]
