"""Estimate the time of runs from the time of similar runs."""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from statistics import fmean
from typing import Any

from onpro.errors import UserError
from onpro.runs.config import RunConfig
from onpro.runs.config_file import parse_config
from onpro.runs.reading import read_runs
from onpro.runs.result import is_timed, machine
from onpro.runs.runner import prepare
from onpro.runs.status import progress
from onpro.training import EvaluationEvent, StepEvent, Trainer

Kind = tuple[object, ...]
"""What runs must have in common to take about as long."""

ANY = "any"
"""In the place of a device."""

CALIBRATION_BATCHES = 2
"""Batches of each class in the short stream that is timed."""


class Estimates:
    """Seconds that runs take: runs of equal settings, else of the same method and stream.

    Runs on the same kind of device are preferred to runs on another kind, whose hardware is noted
    in `hardware`. Of runs side by side each counts its own part of the time. Runs whose time
    includes that of other processes are ignored.
    """

    def __init__(self, out: Path) -> None:
        self._out = out
        self.hardware: set[str] = set()
        """Other hardware whose times have been used."""
        self._hardware: dict[Kind, str] = {}
        self._seconds: dict[Kind, list[float]] = {}
        for config, result in _timed(out):
            seconds = result["train_seconds"] + result["eval_seconds"]
            for kind in (*_kinds(config, result["device"]), *_kinds(config, ANY)):
                self._seconds.setdefault(kind, []).append(seconds)
                self._hardware[kind] = machine(result["hardware"])

    def seconds(self, config: RunConfig) -> float | None:
        """Return the estimated seconds an unfinished run still takes; None if unknown."""
        kinds = (*_kinds(config, config.device), *_kinds(config, ANY))
        known = next((kind for kind in kinds if kind in self._seconds), None)
        if known is None:
            return None
        if known[-1] == ANY:
            self.hardware.add(self._hardware[known])
        begun = progress(config, self._out)
        return max(0.0, fmean(self._seconds[known]) - (begun.seconds if begun else 0.0))

    def calibrate(self, configs: Iterable[RunConfig]) -> dict[str, str]:
        """Time a short stream for each kind of run that has not been timed.

        Returns:
            Why runs cannot be timed, by the folder of the first of each kind.
        """
        problems: dict[str, str] = {}
        failed: set[Kind] = set()
        for config in configs:
            kinds = _kinds(config, config.device)
            if kinds[-1] in failed or any(kind in self._seconds for kind in kinds):
                continue
            try:
                self._seconds[kinds[-1]] = [time_briefly(config)]
            except UserError as error:
                failed.add(kinds[-1])
                problems[config.folder] = str(error)
        return problems


def time_briefly(config: RunConfig) -> float:
    """Return the seconds a run takes, estimated from a short stream with all classes and tasks.

    Steps and evaluation take as much longer as they are more; what a method does at the end of a
    task takes as long. The short stream is trained twice, since the first time warms up.
    """
    few = CALIBRATION_BATCHES * config.batch_size
    short = replace(config, limit_per_class=min(few, config.limit_per_class or few), evaluations=0)
    clock = Clock()
    for _ in range(2):
        clock = Clock()
        trainer = prepare(short)
        trainer.listeners = [clock]
        trainer.run()
    whole = prepare(config)
    steps = len(whole.stream) / len(trainer.stream)
    tests = _test_images(whole) / _test_images(trainer)
    return clock.stepping * steps + clock.closing + trainer.eval_seconds * tests


class Clock:
    """Measures the time of a run's steps, and apart from it the time at the end of tasks."""

    def __init__(self) -> None:
        self.stepping = 0.0
        self.closing = 0.0

    def on_step(self, step: StepEvent) -> None:
        """Count the time since the last event."""
        self.stepping = step.train_seconds - self.closing

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Count the time since the task's last step."""
        self.closing = evaluated.train_seconds - self.stepping


def _timed(out: Path) -> Iterable[tuple[RunConfig, dict[str, Any]]]:
    try:
        runs = read_runs([out], skipped=lambda *_: None)
    except UserError:  # none is finished yet
        return
    for run in runs:
        try:
            config = parse_config(run.config)
        except UserError:  # of another version
            continue
        if is_timed(run.result):
            yield config, run.result


def _kinds(config: RunConfig, device: str) -> tuple[Kind, Kind]:
    stream = (
        *(config.stream, config.tasks, config.batch_size, config.image_size),
        *(config.limit_per_class, config.evaluations, config.shortcut > 0, config.validation),
    )
    return (config.hash, device), (config.method, config.data, *stream, device)


def _test_images(trainer: Trainer) -> int:
    """Return the number of images predicted in all evaluations of a stream."""
    stream = trainer.stream
    ends = list(accumulate(stream.steps_per_task))
    seen = list(accumulate(len(stream.test(task)) for task in range(stream.num_tasks)))
    return sum(seen[bisect_left(ends, step)] for step in stream.evaluation_steps)
