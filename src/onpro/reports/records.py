"""Outcomes as records, for papers and for other programs."""

from collections.abc import Sequence

from onpro.experiments import summarise
from onpro.reports.formats import Column, Record, render, with_spread
from onpro.reports.outcome import Outcome, outcomes
from onpro.runs import Finished

MEASURES = ("accuracy", "forgetting", "incremental", "seconds")

OVER_TIME = {"anytime": "anytime_accuracy", "last": "last_accuracy"}
"""Measures that results of older versions lack."""

FOR_PEOPLE = [
    Column("data", "data", heading="{}"),
    Column("memory", "M", heading="{}"),
    Column("name", "method"),
    Column("precision", "precision"),
    Column("n", "n"),
    Column("accuracy", "accuracy"),
    Column("accuracy_ci95", "CI", ".1f"),
    Column("paper_accuracy", "paper"),
    Column("forgetting", "forgetting"),
    Column("forgetting_ci95", "CI", ".1f"),
    Column("paper_forgetting", "paper"),
    Column("seconds_mean", "training, s", ".0f"),
]

FOR_PROGRAMS = [
    Column(key, key)
    for key in (
        *("method", "recipe", "by_hand", "data", "memory", "precision", "settings", "seeds", "n"),
        *(f"{name}_{part}" for name in MEASURES for part in ("mean", "sd", "ci95")),
        *(f"{name}_{part}" for name in OVER_TIME for part in ("mean", "sd", "ci95")),
        *(f"paper_{name}_{part}" for name in MEASURES[:2] for part in ("mean", "spread")),
    )
]

ABOUT = """\
% needs \\usepackage{booktabs}
% Average accuracy and forgetting in percent after the last task: mean ± standard deviation of n
% runs, half-width of the 95 % confidence interval of the mean (CI), and the OnPro paper's values.
"""


def latex(runs: Sequence[Finished]) -> str:
    """A tabular with the rules of booktabs, ready to paste."""
    table = render([_record(outcome) for outcome in outcomes(runs)], FOR_PEOPLE, "latex")
    return f"{ABOUT}{table}\n"


def comma_separated(runs: Sequence[Finished]) -> str:
    """A line for each experiment, numbers unrounded; `ci95` is the half-width of the interval."""
    return render([_record(outcome) for outcome in outcomes(runs)], FOR_PROGRAMS, "csv") + "\n"


def _record(outcome: Outcome) -> Record:
    result = outcome.result
    record: dict[str, str | int | float | bool | None] = {
        "name": outcome.name,
        "by_hand": ", ".join(outcome.by_hand) or None,
        "settings": outcome.settings,
        "seeds": outcome.seeds,
        "n": outcome.accuracy.n,
    }
    for key in ("method", "recipe", "data", "memory", "precision"):
        record[key] = result.get(key)
    summaries = {name: getattr(outcome, name) for name in MEASURES}
    for name, key in OVER_TIME.items():
        values = [run.result[key] for run in outcome.runs if key in run.result]
        summaries |= {name: summarise(values)} if values else {}
    for name, summary in summaries.items():
        record[name] = _with_spread((summary.mean, summary.deviation))
        record[f"{name}_mean"] = summary.mean
        record[f"{name}_sd"] = summary.deviation
        record[f"{name}_ci95"] = summary.interval
    for name in MEASURES[:2]:
        value = getattr(outcome, f"paper_{name}") or (None, None)
        record[f"paper_{name}"] = _with_spread(value)
        record[f"paper_{name}_mean"], record[f"paper_{name}_spread"] = value
    return record


def _with_spread(value: tuple[float | None, float | None]) -> str | None:
    mean, spread = value
    if mean is None:
        return None
    return with_spread(mean, spread)
