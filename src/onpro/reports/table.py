"""A Markdown table of finished runs beside what the paper reports."""

from collections.abc import Sequence
from typing import Any

from onpro.experiments import Finished, summarise
from onpro.experiments.grouping import by_experiment
from onpro.experiments.paper import AVERAGE_ACCURACY, AVERAGE_FORGETTING, reported
from onpro.reports.hardware import machine
from onpro.reports.tasks import shown_tasks


def report(runs: Sequence[Finished]) -> str:
    """One row for each experiment: accuracy after each task, forgetting, the paper's values.

    A cell is mean ± standard deviation over the seeds. Of a long stream some tasks are shown.
    """
    groups = by_experiment(runs)
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
    rows += [_row(members, tasks) for members in groups.values()]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", *_conditions(runs)])


def _row(members: Sequence[Finished], tasks: Sequence[int]) -> list[str]:
    results = [run.result for run in members]
    first = results[0]
    variant = first.get("recipe")
    key = (first["method"], first["data"], first["memory"])
    curves = [_means(result) for result in results]
    accuracy = [_cell([curve[t] for curve in curves if t < len(curve)]) for t in tasks]
    paper = [
        "" if variant else _paper(reported(table, *key))
        for table in (AVERAGE_ACCURACY, AVERAGE_FORGETTING)
    ]
    return [
        f"{first['method']} ({variant})" if variant else first["method"],
        first["data"],
        str(first["memory"]),
        first["precision"],
        ", ".join(str(result["seed"]) for result in results),
        *accuracy,
        paper[0],
        _cell([result["average_forgetting"] for result in results]),
        paper[1],
        f"{summarise([result['train_seconds'] for result in results]).mean:.0f}",
    ]


def _means(result: dict[str, Any]) -> list[float]:
    return [sum(row[: t + 1]) / (t + 1) for t, row in enumerate(result["accuracy"])]


def _cell(values: Sequence[float]) -> str:
    if not values:
        return ""
    summary = summarise(values)
    spread = "" if summary.deviation is None else f" ± {summary.deviation:.1f}"
    return f"{summary.mean:.1f}{spread}"


def _paper(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{value[0]:.1f} ± {value[1]:.1f}"


def _conditions(runs: Sequence[Finished]) -> list[str]:
    """On what the runs were made, each kind once."""
    kinds = []
    for run in runs:
        hardware, versions = run.result["hardware"], run.result["versions"]
        kind = f"{machine(hardware)}, torch {versions['torch']}, Python {versions['python']}"
        if kind not in kinds:
            kinds.append(kind)
    about = "Average accuracy and forgetting in percent, mean ± standard deviation."
    return [f"{about} {'; '.join(kinds)}."]
