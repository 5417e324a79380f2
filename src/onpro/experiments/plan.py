"""Plan experiments: what is done in a folder and what is left to run."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from onpro.data import find
from onpro.errors import UserError
from onpro.experiments.experiment import Experiment, PlannedRun, Setup
from onpro.experiments.grouping import described
from onpro.methods import settings_for
from onpro.nn import Precision
from onpro.runs.config import KeptModel, ProbeName, RunConfig
from onpro.runs.files import is_held
from onpro.runs.reading import Finished, finished, finished_by_identity
from onpro.training.device import DeviceName
from onpro.training.engine import Engine


@dataclass(frozen=True)
class Place:
    """How the runs of a plan compute, and what they keep."""

    device: DeviceName = "cpu"
    precision: Precision = "fp32"
    data_dir: Path | None = None
    model: KeptModel = "none"
    task_networks: bool = False
    probe: ProbeName = "none"
    probe_every: int = 10
    engine: Literal["auto"] | Engine = "auto"
    deterministic: bool = False


@dataclass(frozen=True)
class Plan:
    """Experiments and the state of their runs in a folder."""

    out: Path
    experiments: tuple[Experiment, ...]

    def runs(self) -> list[PlannedRun]:
        """Return all runs, each once, by seed: a sweep that ends early has all experiments."""
        runs = (run for experiment in self.experiments for run in experiment.planned)
        once = {run.config.folder: run for run in runs}
        return sorted(once.values(), key=lambda run: run.config.seed)

    def left(self) -> list[RunConfig]:
        """Return what is left to run, interrupted runs first."""
        left = [run for run in self.runs() if run.state in ("unfinished", "running", "missing")]
        return [run.config for run in sorted(left, key=lambda run: run.state == "missing")]

    def problems(self) -> list[str]:
        """Return why experiments or runs are left out, each reason once."""
        concerned: dict[str, list[str]] = {}
        for experiment in self.experiments:
            if experiment.problem:
                concerned.setdefault(experiment.problem, []).append(str(experiment))
            for run in experiment.planned:
                if run.problem:
                    concerned.setdefault(run.problem, []).append(run.config.folder)
        return [f"{_some(dict.fromkeys(names))}: {problem}" for problem, names in concerned.items()]

    def without(self, data: str, problem: str) -> "Plan":
        """Return the plan without unfinished runs on a data set, which has a problem."""
        return replace(
            self,
            experiments=tuple(
                one
                if one.data != data or one.problem
                else replace(
                    one,
                    planned=tuple(run for run in one.planned if run.state == "done"),
                    problem=problem,
                )
                for one in self.experiments
            ),
        )


def plan(setups: Iterable[Setup], out: Path, place: Place) -> Plan:
    """Look up the state of all requested runs.

    A setup whose method, recipe or data set does not exist becomes an experiment without runs,
    with the reason.
    """
    renamed = finished_by_identity(out)
    experiments = (_planned(setup, out, place, renamed) for setup in dict.fromkeys(setups))
    return Plan(out, tuple(experiments))


def configurations(setup: Setup, place: Place) -> Iterator[RunConfig]:
    """Yield the configuration of each requested run; raise UserError if names or values are bad."""
    find(setup.data)
    settings = settings_for(setup.method, setup.data, setup.recipe)
    settings = replace(settings, **dict(setup.settings))
    settings.check()
    for seed in setup.seeds:
        yield RunConfig(
            method=setup.method,
            settings=settings,
            data=setup.data,
            memory=setup.memory,
            seed=seed,
            recipe=setup.recipe,
            **vars(place),
            **dict(setup.stream),
        )


def _planned(
    setup: Setup, out: Path, place: Place, renamed: Mapping[str, Path | Finished]
) -> Experiment:
    try:
        configs = list(configurations(setup, place))
    except UserError as error:
        what = setup.method, setup.data, setup.memory, setup.recipe
        return Experiment(*what, problem=str(error))
    planned = tuple(_examine(config, out, renamed) for config in configs)
    runs = tuple(run.finished for run in planned if run.finished)
    return described(configs[0].what(), runs=runs, planned=planned)


def _examine(config: RunConfig, out: Path, renamed: Mapping[str, Path | Finished]) -> PlannedRun:
    try:
        done = finished(config, out, renamed)
    except UserError as error:
        return PlannedRun(config, "damaged", problem=str(error))
    if done:
        return PlannedRun(config, "done", done)
    folder = out / config.folder
    if not folder.exists():
        return PlannedRun(config, "missing")
    return PlannedRun(config, "running" if is_held(folder) else "unfinished")


def _some(names: Iterable[str]) -> str:
    """Return the first few names, and the number of others."""
    listed = list(names)
    rest = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return "; ".join(listed[:3]) + rest
