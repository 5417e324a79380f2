"""Experiments: runs that differ only in their seed, requested, planned or found on disk."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from onpro.errors import UserError, unknown
from onpro.experiments.statistics import Summary, summarise

if TYPE_CHECKING:
    from onpro.runs import Finished, RunConfig

Measure = str
"""A key of `MEASURES`."""

CUE_MEASURES: dict[Measure, str] = {
    "reliance": "shortcut_reliance",
    "following": "cue_following",
    "control": "cue_control",
    "reliance_new": "shortcut_reliance_new",
    "following_new": "cue_following_new",
    "control_new": "cue_control_new",
    "following_any": "cue_following_any",
    "control_any": "cue_control_any",
    "no_cue": "no_cue_accuracy",
    "true_cue": "true_cue_accuracy",
    "wrong_cue": "wrong_cue_accuracy",
}
"""Those that only runs with a shortcut have."""

MEASURES: dict[Measure, str] = {
    "accuracy": "average_accuracy",
    "forgetting": "average_forgetting",
    "incremental": "average_incremental_accuracy",
    "anytime": "anytime_accuracy",
    "last": "last_accuracy",
    "seconds": "train_seconds",
    **CUE_MEASURES,
}
"""Fields of `result.json` that are compared between experiments."""

IN_TABLES: tuple[Measure, ...] = ("accuracy", "forgetting")
"""Measures that tables show by default."""

LOWER_IS_BETTER = {
    *("forgetting", "seconds"),
    *(name for name in CUE_MEASURES if name not in ("no_cue", "true_cue", "wrong_cue")),
}


def named_measures(text: str) -> list[Measure]:
    """Return the measures in a comma-separated text; raise UserError if one is unknown."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in MEASURES:
            raise unknown("measure", name, MEASURES)
    return names


MOST_SEEDS = 10_000
"""Largest number of runs of an experiment; a larger number is a typo and would fill the memory."""

Pairs = tuple[tuple[str, Any], ...]
"""Names and values."""

Value = tuple[float, float]
"""Mean and standard deviation as the paper reports them."""

State = Literal["done", "unfinished", "running", "missing", "damaged"]
"""Finished; interrupted; being trained by another process; not started; unreadable."""

STATES: tuple[State, ...] = get_args(State)


def require_seeds(number: int) -> None:
    """Raise UserError unless the number of runs is sensible."""
    if not 1 <= number <= MOST_SEEDS:
        raise UserError(f"the number of seeds must be from 1 to {MOST_SEEDS}, not {number}.")


@dataclass(frozen=True)
class Setup:
    """What to run for an experiment, as plain data; names and values need not be valid."""

    method: str
    data: str
    memory: int
    seeds: tuple[int, ...]
    recipe: str | None = None
    settings: Pairs = ()
    """Settings of the method that differ from those of data set and recipe."""
    stream: Pairs = ()
    """Fields of `RunConfig` that differ from the data set's own stream."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a plan and its state on disk."""

    config: "RunConfig"
    state: State
    finished: "Finished | None" = None
    problem: str = ""
    """Why it is damaged."""


@dataclass(frozen=True)
class Experiment:
    """Runs that differ only in their seed."""

    method: str
    data: str
    memory: int
    recipe: str | None = None
    by_hand: tuple[str, ...] = ()
    """Settings and stream options that neither data set nor recipe give, such as `epochs=5`."""
    detail: str = ""
    """What tells it from other experiments of the same name, data set and memory."""
    runs: "tuple[Finished, ...]" = ()
    """Finished runs, by seed."""
    planned: tuple[PlannedRun, ...] = ()
    """All runs of a planned experiment; empty if the runs were found on disk."""
    paper: Mapping[Measure, Value] = field(default_factory=dict)
    """The paper's values of the same experiment."""
    problem: str = ""
    """Why a planned experiment cannot be run."""

    @property
    def method_and_recipe(self) -> str:
        """Method and recipe."""
        return f"{self.method} ({self.recipe})" if self.recipe else self.method

    @property
    def name(self) -> str:
        """Method, recipe, settings given by hand, and the detail, in one line."""
        return " ".join(
            ", ".join(filter(None, [self.method_and_recipe, *self.by_hand, self.detail])).split()
        )

    def __str__(self) -> str:
        return f"{self.name}, {self.data}, M = {self.memory}"

    def values(self, measure: Measure) -> list[float]:
        """Return the values of the finished runs; results of older versions may lack some."""
        key = MEASURES[measure]
        return [float(run.result[key]) for run in self.runs if run.result.get(key) is not None]

    def summary(self, measure: Measure) -> Summary | None:
        """Return mean and spread over the finished runs, None without any."""
        values = self.values(measure)
        return summarise(values) if values else None

    def count(self, state: State) -> int:
        """Return the number of planned runs in a state."""
        return sum(run.state == state for run in self.planned)
