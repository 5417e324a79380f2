"""Cells of a table beside the paper's, and the plan of their runs, as records."""

from collections.abc import Callable, Iterable, Sequence

from onpro.experiments import summarise
from onpro.experiments.comparison import Comparison
from onpro.experiments.experiment import MEASURES, Cell
from onpro.experiments.plan import Plan, PlannedExperiment
from onpro.reports.formats import Column, Record, Value
from onpro.runs import RunConfig

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
    Column("interval", "95 % ±", ".2f"),
    Column("paper", "paper", ".1f"),
    Column("paper_deviation", "paper ±", ".1f"),
    Column("difference", "difference", "+.2f"),
    Column("inside", "inside"),
]
"""What a table says of a cell; inside: whether the paper's mean lies in the 95 % interval."""

COMPARISONS = [
    Column("first", "first"),
    Column("second", "second"),
    *PLACE,
    Column("n", "pairs"),
    Column("difference", "difference", "+.2f"),
    Column("t", "p (t)", ".4f"),
    Column("wilcoxon", "p (Wilcoxon)", ".4f"),
]

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
    """Mean, spread and confidence of each cell, beside the paper's mean."""
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
    record |= {
        "mean": summary.mean,
        "deviation": summary.deviation,
        "interval": summary.interval,
    }
    if paper is not None:
        record["difference"] = summary.mean - paper
        if summary.interval is not None:
            record["inside"] = abs(summary.mean - paper) <= summary.interval
    return record


def comparison_records(comparisons: Iterable[Comparison]) -> list[Record]:
    """The differences of pairs and how likely they are by chance."""
    return [
        {
            "first": comparison.first,
            "second": comparison.second,
            "data": comparison.data,
            "memory": comparison.memory,
            "measure": MEASURES[comparison.measure],
            "n": comparison.paired.n,
            "difference": comparison.paired.difference,
            "t": comparison.paired.t,
            "wilcoxon": comparison.paired.wilcoxon,
        }
        for comparison in comparisons
    ]


def plan_records(plan: Plan, seconds: Callable[[RunConfig], float | None]) -> list[Record]:
    """How many runs of each experiment are there, and how long the others will take."""
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
    """Time of several runs one after another; None where one of them is unknown."""
    known = [value for value in map(seconds, configs) if value is not None]
    return sum(known) if len(known) == len(configs) else None


def duration(seconds: float | None) -> str:
    """A time as people say it.

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
