"""Markdown tables of finished runs beside what the paper reports."""

from collections.abc import Callable, Sequence

from onpro.experiments import Summary, summarise
from onpro.experiments.statistics import curve
from onpro.reports.formats import markdown, markdown_text, with_spread
from onpro.reports.hardware import machine
from onpro.reports.outcome import Outcome, forgotten, outcomes
from onpro.reports.tasks import shown_tasks
from onpro.runs import Finished
from onpro.text import written

Curve = Callable[[Sequence[Sequence[float]]], list[float]]
"""A value after each task, from the accuracies on each task after each task."""


def report(runs: Sequence[Finished]) -> str:
    """Average accuracy, then average forgetting, one row for each experiment: after each task.

    A cell is mean ± standard deviation over the seeds; the paper's values come with what ours
    differ by. Of a long stream some tasks are shown.
    """
    found = outcomes(runs)
    lengths = {len(run.result["accuracy"]) for run in runs}
    tasks = sorted({task for length in lengths for task in shown_tasks(length)})
    columns = ["data", "memory", "precision", "seeds"]
    columns += [*(f"after task {task + 1}" for task in tasks), "paper, end"]
    accuracy = [
        [*_row(o, tasks, curve, o.paper_accuracy), written(o.seconds.mean, ".0f")] for o in found
    ]
    forgetting = [_row(o, tasks, forgotten, o.paper_forgetting) for o in found]
    return "\n\n".join(
        [
            markdown(["accuracy", *columns, "training, s"], accuracy),
            markdown(["forgetting", *columns], forgetting),
            _conditions(runs),
        ]
    )


def _row(
    outcome: Outcome,
    tasks: Sequence[int],
    after_tasks: Curve,
    paper: tuple[float, float] | None,
) -> list[str]:
    result = outcome.result
    curves = [after_tasks(run.result["accuracy"]) for run in outcome.runs]
    values = [[values[task] for values in curves if task < len(values)] for task in tasks]
    return [
        outcome.name,
        result["data"],
        str(result["memory"]),
        result["precision"],
        outcome.seeds,
        *(_cell(summarise(seeds)) if seeds else "" for seeds in values),
        _beside(summarise([values[-1] for values in curves]), paper),
    ]


def _cell(summary: Summary) -> str:
    return with_spread(summary.mean, summary.deviation)


def _beside(ours: Summary, paper: tuple[float, float] | None) -> str:
    """The paper's value, and how much above it ours is."""
    if paper is None:
        return ""
    difference = written(ours.mean - paper[0], "+.1f").replace("-", "−")
    return f"{with_spread(*paper)} ({difference})"


def _conditions(runs: Sequence[Finished]) -> str:
    """On what the runs were made, each kind once."""
    kinds = []
    for run in runs:
        hardware, versions = run.result["hardware"], run.result["versions"]
        kind = f"{machine(hardware)}, torch {versions['torch']}, Python {versions['python']}"
        kind = markdown_text(kind)
        if kind not in kinds:
            kinds.append(kind)
    about = (
        "Average accuracy and forgetting in percent, mean ± standard deviation; in brackets the "
        "difference to the paper."
    )
    return f"{about} {'; '.join(kinds)}."
