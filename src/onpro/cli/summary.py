"""Print finished runs."""

from collections.abc import Sequence
from typing import Any, TextIO

from onpro.cli.printing import print_table
from onpro.experiments import summarise
from onpro.experiments.experiment import MEASURES, Experiment
from onpro.experiments.grouping import found
from onpro.experiments.statistics import accuracy_curve, evenly
from onpro.reports.tables import MOST_TASKS
from onpro.runs import Finished
from onpro.runs.threads import unequal_threads
from onpro.text import visible, written

SHOWN = {"average accuracy": "accuracy", "average forgetting": "forgetting"}
"""Measures and their titles."""

SHOWN_OF_CUES = {"shortcut reliance": "reliance", "cue-following rate": "following"}
"""Those of runs with a shortcut."""

WITH_TITLES = 6
"""Most tasks whose columns are titled "task 1" and so on in 80 columns, instead of by a number."""


def print_runs(runs: Sequence[Finished], file: TextIO) -> None:
    """Print accuracy after each task, averages, and where each run was saved."""
    for run in runs:
        print_accuracy(run.result, file)
        for title, measure in _shown(run.result).items():
            print(f"{title:<20} {written(run.result[MEASURES[measure]], '.2f'):>6} %", file=file)
        seconds = written(run.result["train_seconds"], ".1f")
        sharing = run.result.get("shared_by", 1)
        part = f", its part of {sharing} runs side by side" if sharing > 1 else ""
        if (run.result.get("gpu_processes") or 1) > 1:
            part += ", beside other processes on the GPU"
        print(f"{'training':<20} {seconds:>6} s{part}", file=file)
        print(f"{'saved in':<20} {visible(str(run.folder))}", file=file)
    experiments = found(runs)
    for experiment in experiments:
        if len(experiment.runs) > 1:
            name = f"{experiment}, " if len(experiments) > 1 else ""
            _print_together(f"{name}{len(experiment.runs)} runs", experiment, file)


def print_accuracy(result: dict[str, Any], file: TextIO) -> None:
    """Print the accuracy on each task after each task, of a long stream the mean after some."""
    accuracy = result["accuracy"]
    title = f"{result['method']} on {result['data']}, seed {result['seed']}"
    print(f"{visible(title)}: accuracy in %", file=file)
    tasks = range(1, len(accuracy) + 1)
    few = len(accuracy) <= WITH_TITLES
    titles = [f"task {task}" if few else f"{task}" for task in tasks]
    header = ["" if few else "task", *titles, "mean"]
    rows = []
    for task, (row, mean) in enumerate(zip(accuracy, accuracy_curve(accuracy), strict=True)):
        cells = ["" if value is None else written(value, ".1f") for value in row]
        rows.append([f"after task {task + 1}", *cells, written(mean, ".1f")])
    shown = evenly(len(accuracy), MOST_TASKS)
    if len(shown) < len(accuracy):  # too large for a terminal: only some means
        header, rows = ["", "mean"], [[rows[task][0], rows[task][-1]] for task in shown]
    print_table(header, rows, file)


def _shown(result: dict[str, Any]) -> dict[str, str]:
    """Return the measures of a run to print, by title."""
    return SHOWN | (SHOWN_OF_CUES if "cues" in result else {})


def _print_together(title: str, experiment: Experiment, file: TextIO) -> None:
    rows = []
    for shown, measure in _shown(experiment.runs[0].result).items():
        of_all = summarise(experiment.values(measure))
        mean, deviation, interval = (
            "" if value is None else written(value, ".2f")
            for value in (of_all.mean, of_all.deviation, of_all.interval)
        )
        rows.append([shown, f"{mean} %", deviation, f"±{interval}" if interval else "n too small"])
    print_table([title, "mean", "std", "95 % interval"], rows, file)
    if unequal := unequal_threads(run.result for run in experiment.runs):
        print(f"these runs computed {unequal}.", file=file)
