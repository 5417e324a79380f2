"""A Markdown table of finished runs beside what the paper reports."""

from collections.abc import Sequence

from onpro.experiments import Finished, Summary, summarise
from onpro.reports.hardware import machine
from onpro.reports.outcome import Outcome, curve, outcomes
from onpro.reports.tasks import shown_tasks


def report(runs: Sequence[Finished]) -> str:
    """One row for each experiment: accuracy after each task, forgetting, the paper's values.

    A cell is mean ± standard deviation over the seeds; the paper's values come with what ours
    differ by. Of a long stream some tasks are shown.
    """
    lengths = {len(run.result["accuracy"]) for run in runs}
    tasks = sorted({task for length in lengths for task in shown_tasks(length)})
    header = [
        "method",
        "data",
        "memory",
        "precision",
        "seeds",
        *(f"after task {task + 1}" for task in tasks),
        "paper, end",
        "forgetting",
        "paper, forgetting",
        "training, s",
    ]
    rows = [header, ["---"] * len(header)]
    rows += [_row(outcome, tasks) for outcome in outcomes(runs)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", *_conditions(runs)])


def _row(outcome: Outcome, tasks: Sequence[int]) -> list[str]:
    result = outcome.result
    curves = [curve(run.result["accuracy"]) for run in outcome.runs]
    accuracies = [[values[task] for values in curves if task < len(values)] for task in tasks]
    return [
        outcome.name,
        result["data"],
        str(result["memory"]),
        result["precision"],
        outcome.seeds,
        *(_cell(summarise(values)) if values else "" for values in accuracies),
        _beside(outcome.accuracy, outcome.paper_accuracy),
        _cell(outcome.forgetting),
        _beside(outcome.forgetting, outcome.paper_forgetting),
        f"{outcome.seconds.mean:.0f}",
    ]


def _cell(summary: Summary) -> str:
    spread = "" if summary.deviation is None else f" ± {summary.deviation:.1f}"
    return f"{summary.mean:.1f}{spread}"


def _beside(ours: Summary, paper: tuple[float, float] | None) -> str:
    """The paper's value, and how much above it ours is."""
    if paper is None:
        return ""
    difference = f"{ours.mean - paper[0]:+.1f}".replace("-", "−")
    return f"{paper[0]:.1f} ± {paper[1]:.1f} ({difference})"


def _conditions(runs: Sequence[Finished]) -> list[str]:
    """On what the runs were made, each kind once."""
    kinds = []
    for run in runs:
        hardware, versions = run.result["hardware"], run.result["versions"]
        kind = f"{machine(hardware)}, torch {versions['torch']}, Python {versions['python']}"
        if kind not in kinds:
            kinds.append(kind)
    about = (
        "Average accuracy and forgetting in percent, mean ± standard deviation; in brackets the "
        "difference to the paper."
    )
    return [f"{about} {'; '.join(kinds)}."]
