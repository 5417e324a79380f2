"""What a run prints when it is over."""

from collections.abc import Sequence
from typing import Any, TextIO

from onpro.cli.printing import print_table
from onpro.experiments import Finished, summarise
from onpro.reports.tasks import shown_tasks

MEASURES = {
    "average accuracy": "average_accuracy",
    "average forgetting": "average_forgetting",
}


def print_runs(runs: Sequence[Finished], file: TextIO) -> None:
    """Accuracy after each task, averages, and where each run was saved."""
    for run in runs:
        _print_accuracy(run.result, file)
        for title, key in MEASURES.items():
            print(f"{title:<20} {run.result[key]:6.2f} %", file=file)
        print(f"{'training':<20} {run.result['train_seconds']:6.1f} s", file=file)
        print(f"{'saved in':<20} {run.folder}", file=file)
    if len(runs) > 1:
        _print_together(runs, file)


def _print_accuracy(result: dict[str, Any], file: TextIO) -> None:
    accuracy = result["accuracy"]
    header = [
        f"{result['method']} on {result['data']}, seed {result['seed']}",
        *(f"task {task + 1}" for task in range(len(accuracy))),
        "mean",
    ]
    rows = []
    for task, row in enumerate(accuracy):
        seen = row[: task + 1]
        cells = ["" if value is None else f"{value:.1f}" for value in row]
        rows.append([f"after task {task + 1}", *cells, f"{sum(seen) / len(seen):.1f}"])
    shown = shown_tasks(len(accuracy))
    if len(shown) < len(accuracy):  # too large for a terminal: only some means
        header, rows = [header[0], "mean"], [[rows[task][0], rows[task][-1]] for task in shown]
    print_table(header, rows, file)


def _print_together(runs: Sequence[Finished], file: TextIO) -> None:
    rows = []
    for title, key in MEASURES.items():
        summary = summarise([run.result[key] for run in runs])
        rows.append(
            [title, f"{summary.mean:.2f} %", f"{summary.deviation:.2f}", f"±{summary.interval:.2f}"]
        )
    print_table([f"{len(runs)} runs", "mean", "std", "95 % interval"], rows, file)
