"""What has to be run for some experiments, and what is there already."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from onpro.data import find
from onpro.errors import UserError
from onpro.experiments.experiment import Cell, Experiment, Measure, experiments_of
from onpro.methods import settings_for
from onpro.nn import Precision
from onpro.runs.config import KeptModel, RunConfig
from onpro.runs.files import is_held
from onpro.runs.runner import finished
from onpro.training.device import DeviceName

State = Literal["done", "unfinished", "running", "missing", "damaged"]
"""Finished; begun and to be continued; in the hands of another process; not there; unusable."""


@dataclass(frozen=True)
class Place:
    """How the runs of a plan compute, and what they keep."""

    device: DeviceName = "cpu"
    precision: Precision = "fp32"
    data_dir: Path | None = None
    model: KeptModel = "none"


@dataclass(frozen=True)
class PlannedRun:
    """A run and what there is of it."""

    config: RunConfig
    state: State
    result: dict[str, Any] | None = None
    problem: str = ""
    """Why a damaged one is."""


@dataclass(frozen=True)
class PlannedExperiment:
    """The runs of an experiment, or why it has none."""

    experiment: Experiment
    runs: tuple[PlannedRun, ...] = ()
    problem: str = ""

    def count(self, state: State) -> int:
        """How many runs are in a state."""
        return sum(run.state == state for run in self.runs)

    def values(self, measure: Measure) -> dict[int, float]:
        """What the finished runs measured, by seed."""
        return {
            run.config.seed: float(run.result[measure])
            for run in self.runs
            if run.result is not None and measure in run.result  # older versions lack some
        }


@dataclass(frozen=True)
class Plan:
    """Experiments with the state of their runs in a folder."""

    out: Path
    experiments: tuple[PlannedExperiment, ...]

    def runs(self) -> list[PlannedRun]:
        """All runs, each once however many experiments share it: first all of the first seed.

        So if a sweep ends early, all experiments have about as many runs.
        """
        once: dict[str, PlannedRun] = {}
        for planned in self.experiments:
            once.update((run.config.folder, run) for run in planned.runs)
        return sorted(once.values(), key=lambda run: run.config.seed)

    def left(self) -> list[RunConfig]:
        """What is not finished; what was begun comes first."""
        left = [run for run in self.runs() if run.state in ("unfinished", "running", "missing")]
        return [run.config for run in sorted(left, key=lambda run: run.state == "missing")]

    def problems(self) -> list[str]:
        """Why experiments or runs are left out, each reason once, with what it concerns."""
        concerned: dict[str, list[str]] = {}
        for planned in self.experiments:
            if planned.problem:
                concerned.setdefault(planned.problem, []).append(str(planned.experiment))
            for run in planned.runs:
                if run.problem:
                    concerned.setdefault(run.problem, []).append(run.config.folder)
        return [f"{_some(dict.fromkeys(names))}: {problem}" for problem, names in concerned.items()]

    def of(self, experiment: Experiment) -> PlannedExperiment:
        """What is planned for an experiment."""
        return next(p for p in self.experiments if p.experiment == experiment)

    def without(self, data: str, problem: str) -> "Plan":
        """The plan without what is not finished on a data set, and why."""
        return replace(
            self,
            experiments=tuple(
                planned
                if planned.experiment.data != data or planned.problem
                else replace(
                    planned,
                    runs=tuple(run for run in planned.runs if run.state == "done"),
                    problem=problem,
                )
                for planned in self.experiments
            ),
        )


def plan(cells: Iterable[Cell], out: Path, place: Place) -> Plan:
    """Find out what there is of the runs behind the cells and what is left to do.

    An experiment whose method, variant or data set does not exist stays in the plan with the
    reason, and without runs.
    """
    return Plan(out, tuple(_planned(e, out, place) for e in experiments_of(cells)))


def configurations(experiment: Experiment, place: Place) -> Iterator[RunConfig]:
    """The runs of an experiment; a sentence where its names or values cannot be used."""
    find(experiment.data)
    settings = settings_for(experiment.method, experiment.data, experiment.recipe)
    settings = replace(settings, **dict(experiment.settings))
    settings.check()
    for seed in experiment.seeds:
        yield RunConfig(
            method=experiment.method,
            settings=settings,
            data=experiment.data,
            memory=experiment.memory,
            seed=seed,
            recipe=experiment.recipe,
            precision=place.precision,
            data_dir=place.data_dir,
            device=place.device,
            model=place.model,
            **dict(experiment.stream),
        )


def _planned(experiment: Experiment, out: Path, place: Place) -> PlannedExperiment:
    try:
        configs = list(configurations(experiment, place))
    except UserError as error:
        return PlannedExperiment(experiment, problem=str(error))
    return PlannedExperiment(experiment, tuple(_examine(config, out) for config in configs))


def _examine(config: RunConfig, out: Path) -> PlannedRun:
    folder = out / config.folder
    try:
        done = finished(config, out)
    except UserError as error:
        return PlannedRun(config, "damaged", problem=str(error))
    if done:
        return PlannedRun(config, "done", done.result)
    if not folder.exists():
        return PlannedRun(config, "missing")
    return PlannedRun(config, "running" if is_held(folder) else "unfinished")


def _some(names: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    listed = list(names)
    rest = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return "; ".join(listed[:3]) + rest
