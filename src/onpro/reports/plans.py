"""Records of planned runs and the time they still need."""

from collections.abc import Callable, Iterable

from onpro.experiments.experiment import STATES, Experiment
from onpro.experiments.plan import Plan
from onpro.reports.formats import Column, Record, Value
from onpro.reports.tables import PLACE
from onpro.runs import RunConfig

PLAN = [
    Column("name", "experiment"),
    Column("method", "", for_programs=True),
    Column("recipe", "", for_programs=True),
    *PLACE,
    *(Column(state, state) for state in STATES),
    Column("left", "time left"),
    Column("seconds_left", "", for_programs=True),
]


def plan_records(plan: Plan, seconds: Callable[[RunConfig], float | None]) -> list[Record]:
    """Return how many runs of each experiment are in which state, and the time they still need."""
    return [_planned(experiment, seconds) for experiment in plan.experiments]


def _planned(
    experiment: Experiment, seconds: Callable[[RunConfig], float | None]
) -> dict[str, Value]:
    configs = [run.config for run in experiment.planned if run.state not in ("done", "damaged")]
    known = known_seconds(configs, seconds)
    left = sum(known) if len(known) == len(configs) else None
    said = duration(left) if configs else ""
    return {
        "name": experiment.name,
        "method": experiment.method,
        "recipe": experiment.recipe,
        "data": experiment.data,
        "memory": experiment.memory,
        **{state: experiment.count(state) for state in STATES},
        "left": "left out" if experiment.problem and not experiment.planned else said,
        "seconds_left": left,
    }


def known_seconds(
    configs: Iterable[RunConfig], seconds: Callable[[RunConfig], float | None]
) -> list[float]:
    """Return the times of those runs whose time is known."""
    return [value for value in map(seconds, configs) if value is not None]


def duration(seconds: float | None) -> str:
    """Format a time in its two largest units.

    >>> duration(42.4), duration(130), duration(7500), duration(3.5 * 86400), duration(None)
    ('42 s', '2 min 10 s', '2 h 5 min', '3 d 12 h', 'unknown')
    """
    if seconds is None:
        return "unknown"
    sizes = {"d": 86400, "h": 3600, "min": 60, "s": 1}
    units = list(sizes)
    whole = round(seconds)
    first = next((i for i, unit in enumerate(units) if whole >= sizes[unit]), len(units) - 1)
    parts: list[str] = []
    for unit in units[first : first + 2]:
        count, whole = divmod(whole, sizes[unit])
        if count or not parts:
            parts.append(f"{count} {unit}")
    return " ".join(parts)
