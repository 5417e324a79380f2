"""Progress of a run, read from its log."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onpro.data import find
from onpro.errors import UserError
from onpro.files import open_plain
from onpro.runs.config import RunConfig
from onpro.runs.schema import is_amount, is_whole

ENOUGH = 1 << 16
"""Number of bytes read from the end of a log."""


@dataclass(frozen=True)
class RunProgress:
    """Progress of a run at the last line of its log."""

    step: int
    task: int
    """Number of the current task, from 0."""
    seconds: float
    """Training time so far, without the steps of other runs in the same process."""
    elapsed: float
    """Training time so far, with the steps of other runs in the same process."""
    accuracy: float | None
    """Mean accuracy over the tasks seen at the last evaluation, in percent."""
    total_steps: float | None
    """Estimated number of steps of the run, None before the first evaluation."""
    tasks: int | None
    """Number of tasks, None if the data set does not say."""

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining time."""
        if not self.step or self.total_steps is None:
            return None
        return max(0.0, self.elapsed * (self.total_steps / self.step - 1))


def progress(config: RunConfig, out: Path) -> RunProgress | None:
    """Return the progress of a run below `out`, see `progress_in`."""
    return progress_in(out / config.folder, config)


def progress_in(folder: Path, config: RunConfig) -> RunProgress | None:
    """Return the progress of the run in a folder, None if it has not logged anything yet."""
    events = _last_events(folder / "events.jsonl")
    if not events:
        return None
    last = events[-1]
    tasks = _tasks(config)
    evaluated = next((e for e in reversed(events) if e["event"] == "evaluation"), None)
    accuracy = total = None
    if evaluated:
        accuracy = sum(evaluated["accuracy"]) / len(evaluated["accuracy"])
        total = tasks and evaluated["step"] / (evaluated["task"] + 1) * tasks
    seconds = last["train_seconds"]
    elapsed = last.get("elapsed_seconds", seconds)  # older versions did not log it
    return RunProgress(last["step"], last["task"], seconds, elapsed, accuracy, total, tasks)


def _last_events(path: Path) -> list[dict[str, Any]]:
    """Return the last complete events of a log that may be growing, without damaged ones."""
    try:
        with open_plain(path, "rb") as file:
            start = max(0, file.seek(0, 2) - ENOUGH)
            file.seek(start)
            lines = file.read().split(b"\n")
    except OSError:
        return []
    whole = lines[1 if start else 0 : -1]
    return [event for event in map(_parsed, whole) if _is_event(event)]


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # truncated while it was read, or damaged
        return None


def _is_event(event: Any) -> bool:
    if not isinstance(event, dict):
        return False
    numbers = is_whole(event.get("step")) and is_whole(event.get("task"))
    seconds = (event.get("train_seconds"), event.get("elapsed_seconds", 0))
    if not numbers or not all(map(is_amount, seconds)):
        return False
    if event.get("event") == "step":
        return True
    accuracy = event.get("accuracy")
    if event.get("event") != "evaluation" or not isinstance(accuracy, list):
        return False
    return bool(accuracy) and all(map(is_amount, accuracy))


def _tasks(config: RunConfig) -> int | None:
    if config.tasks is not None:
        return config.tasks
    try:
        source = find(config.data)
    except UserError:
        return None
    return source.tasks_for(source.classes) if source.classes else source.tasks
