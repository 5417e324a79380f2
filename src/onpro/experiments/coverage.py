"""Compare the cells of the paper's tables with the runs that measure them."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from onpro.experiments.experiment import Experiment, Measure, Setup, Value
from onpro.experiments.grouping import digest_of
from onpro.experiments.plan import Place, configurations
from onpro.experiments.statistics import Summary
from onpro.experiments.tables import PaperTable, Row, paper_tables
from onpro.methods import method
from onpro.nn import Precision
from onpro.text import written

TOLERANCE = 2.0
"""Points by which a mean may differ from the paper's and agree with it."""

SEEDS_WANTED = 3
"""Seeds in the command of a cell that is not measured."""

Status = Literal["agrees", "differs", "not measured"]


@dataclass(frozen=True)
class Cell:
    """A number in a table of the paper, with the runs that measure it here."""

    table: PaperTable
    row: Row
    data: str
    memory: int
    measure: Measure
    paper: Value
    experiment: Experiment | None = None
    """None if there is no finished run."""

    @property
    def summary(self) -> Summary | None:
        """Mean and spread of the runs."""
        return self.experiment.summary(self.measure) if self.experiment else None

    @property
    def difference(self) -> float | None:
        """Our mean − the paper's."""
        return self.summary.mean - self.paper[0] if self.summary else None

    @property
    def status(self) -> Status:
        """Whether the runs agree with the paper.

        They do if the means differ by at most `TOLERANCE`, as the tables print them, or if the
        paper's mean is in the 95 % interval of ours.
        """
        if self.summary is None or self.difference is None:
            return "not measured"
        printed = abs(float(written(self.difference, ".1f")))
        inside = abs(self.difference) <= (self.summary.interval or 0.0)
        return "agrees" if printed <= TOLERANCE or inside else "differs"

    @property
    def command(self) -> str:
        """The command that runs the experiment."""
        memory = self.experiment.memory if self.experiment else self.memory
        words = ["onpro", "run", self.row.method, "--data", self.data, "--memory", str(memory)]
        if self.row.recipe:
            words += ["--recipe", self.row.recipe]
        if self.experiment is None:
            return shlex.join([*words, "--seeds", str(SEEDS_WANTED)])
        results = [run.result for run in self.experiment.runs]
        first = min(result["seed"] for result in results)
        words += ["--seed", str(first)] if first else []
        words += ["--seeds", str(max(result["seed"] for result in results) - first + 1)]
        return shlex.join([*words, "--precision", results[0]["precision"]])


def coverage(experiments: Iterable[Experiment]) -> list[Cell]:
    """Return all cells of the paper's tables, table by table.

    Of several experiments with the same settings, on different devices or in different precisions,
    that with the most runs counts. A method that keeps no images has the same result with every
    memory of a table, so that its runs with one of them count for all.
    """
    found: dict[str, Experiment] = {}
    for one in sorted(experiments, key=lambda one: len(one.runs)):
        digest = digest_of(one.runs[0])
        if digest:
            found[digest] = one
    cells = []
    for table in paper_tables().values():
        for row in table.rows:
            measured = {
                place: _most_runs(found, _setups(table, row, *place)) for place in table.places
            }
            cells += [
                Cell(table, row, data, memory, measure, value, measured[data, memory])
                for (data, memory, measure), value in row.values.items()
            ]
    return cells


def _setups(table: PaperTable, row: Row, data: str, memory: int) -> list[Setup]:
    """Return the setups that measure a cell, that of the cell itself first."""
    memories = [memory]
    if not method(row.method).keeps_images:
        memories += [other for name, other in table.places if name == data and other != memory]
    return [Setup(row.method, data, size, (0,), row.recipe) for size in memories]


def _most_runs(found: dict[str, Experiment], setups: Iterable[Setup]) -> Experiment | None:
    """Return the experiment of one of the setups, in any precision, that has the most runs."""
    wanted = (
        config.experiment
        for setup in setups
        for precision in get_args(Precision)
        for config in configurations(setup, Place(precision=precision))
    )
    there = [found[digest] for digest in wanted if digest in found]
    return max(there, key=lambda one: len(one.runs), default=None)
