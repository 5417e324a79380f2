"""Records of results beside the paper's, of comparisons and of planned runs."""

from collections.abc import Callable, Iterable, Sequence

from onpro.experiments import summarise
from onpro.experiments.comparison import Comparison
from onpro.experiments.experiment import MEASURES, Cell
from onpro.experiments.plan import Plan, PlannedExperiment
from onpro.reports.formats import Column, Record, Value
from onpro.runs import RunConfig
from onpro.text import written

PLACE = [
    Column("data", "data", heading="{}"),
    Column("memory", "memory", heading="M = {}"),
    Column("measure", "measure", heading="{}"),
]

CELLS = [
    Column("title", "method"),
    Column("method", "", for_programs=True),
    Column("recipe", "", for_programs=True),
    *PLACE,
    Column("n", "n"),
    Column("mean", "mean", ".2f"),
    Column("deviation", "std", ".2f"),
    Column("interval", "", for_programs=True),
    Column("bounds", "95 % interval", for_people=True),
    Column("paper", "paper", ".1f"),
    Column("paper_deviation", "paper ±", ".1f"),
    Column("difference", "difference", "+.2f"),
]

COMPARISONS = [
    Column("first", "first"),
    Column("second", "second"),
    *PLACE,
    Column("test", "test"),
    Column("runs", "n", for_people=True),
    Column("n_first", "", for_programs=True),
    Column("n_second", "", for_programs=True),
    Column("difference", "difference", "+.2f"),
    Column("interval", "", for_programs=True),
    Column("bounds", "95 % interval", for_people=True),
    Column("p", "p", ".2g"),
    Column("p_holm", "p (Holm)", ".2g"),
    Column("wilcoxon", "p (Wilcoxon)", ".2g"),
    Column("note", "note"),
]

FEWEST_RUNS = 3
"""Fewest runs for which the table of results has a confidence interval: that of two runs is nine
standard deviations to either side."""

PLAN = [
    Column("title", "method"),
    Column("method", "", for_programs=True),
    Column("recipe", "", for_programs=True),
    *PLACE[:2],
    Column("done", "done"),
    Column("unfinished", "unfinished"),
    Column("running", "running"),
    Column("missing", "missing"),
    Column("damaged", "damaged"),
    Column("left", "time left"),
    Column("seconds_left", "", for_programs=True),
]


def cell_records(cells: Iterable[Cell], plan: Plan) -> list[Record]:
    """Return mean, spread and confidence interval of each cell beside the paper's mean."""
    return [_cell(cell, plan) for cell in cells]


def _cell(cell: Cell, plan: Plan) -> Record:
    values = list(plan.of(cell.experiment).values(cell.measure).values())
    paper, paper_deviation = cell.paper or (None, None)
    record: dict[str, Value] = {
        "title": cell.experiment.title,
        "method": cell.experiment.method,
        "recipe": cell.experiment.recipe,
        "data": cell.experiment.data,
        "memory": cell.experiment.memory,
        "measure": MEASURES[cell.measure],
        "n": len(values),
        "paper": paper,
        "paper_deviation": paper_deviation,
    }
    if not values:
        return record
    summary = summarise(values)
    interval = summary.interval if summary.n >= FEWEST_RUNS else None
    record |= {
        "mean": summary.mean,
        "deviation": summary.deviation,
        "interval": interval,
        "bounds": "n too small" if interval is None else _bounds(summary.mean, interval),
    }
    if paper is not None:
        record["difference"] = summary.mean - paper
    return record


def _bounds(mean: float, half_width: float, spec: str = ".2f") -> str:
    low, high = (written(mean + side * half_width, spec) for side in (-1, 1))
    return f"{low} to {high}"


def comparison_records(comparisons: Iterable[Comparison]) -> list[Record]:
    """Return differences between experiments with their confidence intervals and p values."""
    return [_comparison(comparison) for comparison in comparisons]


def _comparison(comparison: Comparison) -> Record:
    found = comparison.difference
    first, second = found.n
    return {
        "first": comparison.first,
        "second": comparison.second,
        "data": comparison.data,
        "memory": comparison.memory,
        "measure": MEASURES[comparison.measure],
        "test": found.test,
        "runs": f"{first} pairs" if found.test == "paired" else f"{first} + {second}",
        "n_first": first,
        "n_second": second,
        "difference": found.mean,
        "interval": found.interval,
        "bounds": None if found.interval is None else _bounds(found.mean, found.interval, "+.2f"),
        "p": found.p,
        "p_holm": comparison.p_holm,
        "wilcoxon": found.wilcoxon,
        "note": "constant difference" if found.constant else None,
    }


def plan_records(plan: Plan, seconds: Callable[[RunConfig], float | None]) -> list[Record]:
    """Return how many runs of each experiment are in which state, and the time they still need."""
    return [_planned(planned, seconds) for planned in plan.experiments]


def _planned(
    planned: PlannedExperiment, seconds: Callable[[RunConfig], float | None]
) -> dict[str, Value]:
    experiment = planned.experiment
    configs = [run.config for run in planned.runs if run.state not in ("done", "damaged")]
    left = total_seconds(configs, seconds)
    said = duration(left) if configs else ""
    return {
        "title": experiment.title,
        "method": experiment.method,
        "recipe": experiment.recipe,
        "data": experiment.data,
        "memory": experiment.memory,
        "done": planned.count("done"),
        "unfinished": planned.count("unfinished"),
        "running": planned.count("running"),
        "missing": planned.count("missing"),
        "damaged": planned.count("damaged"),
        "left": "left out" if planned.problem and not planned.runs else said,
        "seconds_left": left,
    }


def total_seconds(
    configs: Sequence[RunConfig], seconds: Callable[[RunConfig], float | None]
) -> float | None:
    """Return the total time of several runs; None if the time of one is unknown."""
    known = [value for value in map(seconds, configs) if value is not None]
    return sum(known) if len(known) == len(configs) else None


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
