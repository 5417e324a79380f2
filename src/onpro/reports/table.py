"""Markdown tables of finished runs, beside the paper's values or against each other."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from onpro.errors import UserError
from onpro.experiments import Summary, summarise
from onpro.experiments.comparison import Sample, compare
from onpro.experiments.experiment import PAPER_MEASURES
from onpro.experiments.statistics import curve
from onpro.reports.cells import COMPARISONS, comparison_records
from onpro.reports.formats import markdown, markdown_text, render, with_spread
from onpro.reports.hardware import machine
from onpro.reports.outcome import Outcome, forgotten, outcomes
from onpro.reports.tasks import shown_tasks
from onpro.runs import Finished
from onpro.text import written

Curve = Callable[[Sequence[Sequence[float]]], list[float]]
"""Computes a value after each task from the accuracy matrix."""

WELCH = (
    "Average accuracy and forgetting after the last task, in percent: difference of the means "
    "(first − second), its 95 % interval and p by Welch's t-test (two-sided, unequal variances); "
    "p (Holm) is adjusted for all pairs of the measure. Rows of a single run are left out."
)


def report(runs: Sequence[Finished]) -> str:
    """Return tables of average accuracy and average forgetting after each task.

    Each experiment is a row. A cell is mean ± standard deviation over the seeds; the paper's
    values come with the difference to them. For a long stream only some tasks are shown.
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


def comparisons(runs: Sequence[Finished]) -> str:
    """Return a table of all pairs of experiments with the same data set and memory.

    The tests are not paired, since finished runs may come from versions with other streams.
    """
    found = compare(_samples(outcomes(runs)))
    if not found:
        raise UserError(
            "nothing to compare: no two experiments with the same data set and memory have two "
            "runs each."
        )
    return f"{render(comparison_records(found), COMPARISONS, 'markdown')}\n\n{WELCH}"


def _samples(found: Sequence[Outcome]) -> Iterator[Sample]:
    """Yield the values of each experiment and measure, with keys that make no pairs."""
    names = Counter((o.name, o.result["data"], o.result["memory"]) for o in found)
    for measure in PAPER_MEASURES:
        for number, outcome in enumerate(found):
            name, data, memory = outcome.name, outcome.result["data"], outcome.result["memory"]
            title = name if names[name, data, memory] == 1 else outcome.title
            values: dict[Hashable, float] = {
                (number, index): run.result[measure] for index, run in enumerate(outcome.runs)
            }
            yield Sample(title, data, memory, measure, values)


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
    """Return the paper's value and the difference of ours to it."""
    if paper is None:
        return ""
    difference = written(ours.mean - paper[0], "+.1f").replace("-", "−")
    return f"{with_spread(*paper)} ({difference})"


def _conditions(runs: Sequence[Finished]) -> str:
    """Return a sentence on hardware and versions, each combination once."""
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
