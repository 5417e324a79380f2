"""What the runs of one experiment, alike but for their seed, say together."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import sub
from statistics import fmean
from typing import Any

from onpro.experiments import Summary, summarise
from onpro.experiments.grouping import by_experiment, settings_code
from onpro.experiments.naming import configuration, given_by_hand, name_of
from onpro.experiments.statistics import curve
from onpro.experiments.tables import reported
from onpro.runs import Finished


@dataclass(frozen=True)
class Outcome:
    """A row of a table of results."""

    title: str
    """Tells it from all others of the report."""
    name: str
    """The method, its variation where it is one, and settings that were given by hand."""
    runs: tuple[Finished, ...]
    by_hand: tuple[str, ...]
    """What neither the data set nor a recipe gave, of settings and stream, such as epochs=5."""
    accuracy: Summary
    """Average accuracy at the end."""
    forgetting: Summary
    """As the paper's tables have it."""
    incremental: Summary
    """Mean over the tasks of the average accuracy after each."""
    seconds: Summary
    """Of training."""
    paper_accuracy: tuple[float, float] | None
    """Mean and what it gives as ±; None where the paper has no such cell."""
    paper_forgetting: tuple[float, float] | None

    @property
    def result(self) -> dict[str, Any]:
        """What the first run says; for what all runs have in common."""
        return self.runs[0].result

    @property
    def settings(self) -> str:
        """Eight digits that tell its settings from others."""
        return settings_code(self.runs[0])

    @property
    def seeds(self) -> str:
        """The seeds, such as 0–14."""
        return ranges([run.result["seed"] for run in self.runs])


def outcomes(runs: Sequence[Finished]) -> list[Outcome]:
    """What each experiment among the runs says, by data set and memory, the most accurate first."""
    found = [_outcome(title, members) for title, members in by_experiment(runs).items()]
    return sorted(
        found, key=lambda o: (o.result["data"], o.result["memory"], -o.accuracy.mean, o.title)
    )


def _outcome(title: str, members: Sequence[Finished]) -> Outcome:
    members = sorted(members, key=lambda run: run.result["seed"])
    results = [run.result for run in members]
    curves = [curve(result["accuracy"]) for result in results]
    first = results[0]
    by_hand = given_by_hand(members[0])
    known = bool(configuration(members[0])) and not by_hand
    cell = (first["method"], first.get("recipe"), first["data"], first["memory"])
    return Outcome(
        title=title,
        name=name_of(members[0]),
        runs=tuple(members),
        by_hand=by_hand,
        accuracy=summarise([values[-1] for values in curves]),
        forgetting=summarise([result["average_forgetting"] for result in results]),
        incremental=summarise([fmean(values) for values in curves]),
        seconds=summarise([result["train_seconds"] for result in results]),
        paper_accuracy=reported(*cell, "average_accuracy") if known else None,
        paper_forgetting=reported(*cell, "average_forgetting") if known else None,
    )


def ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in order; three or more that follow each other are a range.

    >>> ranges([0, 1, 4, 5, 6, 7])
    '0, 1, 4–7'
    """
    stretches: list[list[int]] = []
    for number in numbers:
        if stretches and number == stretches[-1][-1] + 1:
            stretches[-1].append(number)
        else:
            stretches.append([number])
    parts = [
        [f"{stretch[0]}–{stretch[-1]}"] if len(stretch) > 2 else map(str, stretch)
        for stretch in stretches
    ]
    return ", ".join(chain.from_iterable(parts))


def forgetting(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return for each task its best accuracy minus its last; the mean is the paper's F_c.

    >>> forgetting([[90.0, None], [50.0, 80.0]])
    [40.0, 0.0]
    """
    *_, last = _forgetting_after_each(accuracy)
    return last


def forgotten(accuracy: Sequence[Sequence[float]]) -> list[float]:
    """Return the average forgetting of the tasks seen so far, after each task.

    >>> forgotten([[90.0, None], [50.0, 80.0]])
    [0.0, 20.0]
    """
    return [fmean(tasks) for tasks in _forgetting_after_each(accuracy)]


def _forgetting_after_each(accuracy: Sequence[Sequence[float]]) -> Iterator[list[float]]:
    """Yield after each task the forgetting of all tasks so far, from running maxima."""
    best: list[float] = []
    for task, row in enumerate(accuracy):
        seen = row[: task + 1]
        best = [*map(max, best, seen), seen[-1]]
        yield list(map(sub, best, seen))
