"""The progress of runs: a bar or a table on a terminal, plain lines elsewhere."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Self

from onpro.errors import counted
from onpro.experiments.executors import RunEvent, RunRequest
from onpro.reports.plans import duration
from onpro.reports.tables import MOST_TASKS
from onpro.runs.status import RunProgress, progress_in
from onpro.text import visible, written
from onpro.training import EvaluationEvent, StepEvent, Trainer

if TYPE_CHECKING:
    from rich.live import Live as RichLive
    from rich.progress import Progress as RichProgress
    from rich.table import Table

ORDER = ("running", "failed", "again", "waiting", "done")
"""What is shown first where there is no room for all."""

REFRESH_EVERY = 0.5
REPORT_EVERY = 60.0
"""Seconds between two lines with the number of finished runs, where there is no terminal."""


class _Shown(ABC):
    """Something on the screen while it is used as a context, if there is a terminal."""

    _screen: "RichLive | RichProgress | None" = None

    @abstractmethod
    def _drawn(self) -> "RichLive | RichProgress":
        """Return what is shown on a terminal."""

    def __enter__(self) -> Self:
        self._start()
        return self

    def _start(self) -> None:
        if sys.stderr.isatty():
            self._screen = self._drawn()
            self._screen.start()

    def __exit__(self, *_: object) -> None:
        if self._screen:
            self._screen.refresh()
            self._screen.stop()

    def _say(self, line: str) -> None:
        """Print a line, above what is on the screen."""
        if self._screen:
            self._screen.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)


class Bar(_Shown):
    """Shows task, step, loss terms, images per second and time left of a run in this process.

    While the run rehearses, it shows how many steps that has taken.

    Args:
        name: Name of the run.
    """

    def __init__(self, name: str) -> None:
        self._name = visible(name)
        self._figures = ""

    def _drawn(self) -> "RichProgress":
        self._bar = _rich_bar()
        return self._bar

    def __enter__(self) -> Self:
        return self  # it is shown once there is a run: loading the data may show another bar

    def follow(self, trainer: Trainer) -> "Bar":
        """Follow a run; return the bar as the listener of the run."""
        self._start()
        self._stream = trainer.stream
        self._say(f"{self._name}: {counted(len(self._stream), 'step')}")
        if self._screen:
            self._task = self._bar.add_task(
                "", total=len(self._stream), status="", rehearsal="", run=trainer
            )
        return self

    def on_step(self, step: StepEvent) -> None:
        """Show the step beside the bar."""
        loss = " ".join(f"{name} {value:.2f}" for name, value in step.terms.items())
        speed = step.images_seen / step.elapsed_seconds if step.elapsed_seconds else 0.0
        self._figures = f"{speed:,.0f} images/s  {loss}"
        self._tell(step.task)

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Print the mean accuracy, and the accuracy on each task where there are few."""
        tasks = self._stream.num_tasks
        each = " ".join(written(value, ".1f") for value in evaluated.accuracy)
        each = f" ({each})" if tasks <= MOST_TASKS else ""
        self._say(
            f"task {evaluated.task + 1}/{tasks}, step {evaluated.step}/{len(self._stream)}: "
            f"accuracy {written(fmean(evaluated.accuracy), '.1f')} %{each}, "
            f"{evaluated.train_seconds:.1f} s"
        )
        self._tell(min(evaluated.task + 1, tasks - 1))

    def _tell(self, task: int) -> None:
        if self._screen:
            status = f"task {task + 1}/{self._stream.num_tasks}  {self._figures}"
            self._bar.update(self._task, status=status)


def _rich_bar() -> "RichProgress":
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    class AlongStream(RichProgress):
        """Reads how far a run is whenever it is drawn, so that no step has to tell it."""

        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.tasks:
                run = task.fields["run"]
                rehearsed = run.stepper.rehearsed
                rehearsal = f"rehearsal, step {rehearsed}  " if rehearsed else ""
                self.update(task.id, completed=run.stream.position, rehearsal=rehearsal)
            return super().get_renderables()

    return AlongStream(
        BarColumn(bar_width=12, table_column=Column(min_width=12)),
        MofNCompleteColumn(table_column=Column(min_width=9, no_wrap=True)),
        TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
        TextColumn(
            "{task.fields[rehearsal]}{task.fields[status]}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
        console=Console(stderr=True),
        expand=True,  # so that the text is cut instead of the bar
    )


class Live(_Shown):
    """Shows state, task, accuracy so far and time left of many runs, from their logs."""

    def __init__(self, runs: Sequence[RunRequest]) -> None:
        self._runs = {run.final_folder: run for run in runs}
        self._states = dict.fromkeys(self._runs, "waiting")
        self._began = self._refreshed = time.monotonic()

    def _drawn(self) -> "RichLive":
        from rich.console import Console
        from rich.live import Live as RichLive

        console = Console(stderr=True, markup=False)  # a folder may have brackets in its name
        return RichLive(get_renderable=self._table, console=console, auto_refresh=False)

    def show(self, event: RunEvent) -> None:
        """Show an event."""
        if event.request:
            self._note(event.kind, event.request.final_folder, event.reason)
            if event.result.output:
                self._say(event.result.output)
        every = REFRESH_EVERY if self._screen else REPORT_EVERY
        if time.monotonic() - self._refreshed >= every:
            self._refreshed = time.monotonic()
            if self._screen:
                self._screen.refresh()
            else:
                self._say(self._summary())

    def _note(self, kind: str, folder: Path, reason: str) -> None:
        states = {"started": "running", "finished": "done"}
        self._states[folder] = states.get(kind, kind)
        name = visible(folder.name)
        if kind == "finished":
            now = progress_in(folder, self._runs[folder].config)
            accuracy = "" if now is None else _percent(now.accuracy)
            known = f", accuracy {accuracy}" if accuracy else ""
            self._say(f"finished: {name}{known}, {self._summary()}")
        elif kind in ("failed", "again") or not self._screen:
            self._say(f"{kind}: {name}{f': {visible(reason)}' if reason else ''}")

    def _summary(self) -> str:
        states = list(self._states.values())
        counts = (f"{states.count(s)} {s}" for s in ("running", "failed") if s in states)
        return ", ".join([f"{states.count('done')} of {len(states)} done", *counts])

    def _table(self) -> "Table":
        from rich import box
        from rich.table import Table

        title = f"{self._summary()}, {duration(time.monotonic() - self._began)}"
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=title)
        for name in ("run", "state", "task", "accuracy", "time left"):
            table.add_column(name, overflow="fold")
        height = self._screen.console.height if self._screen else 25
        folders = sorted(self._states, key=lambda folder: ORDER.index(self._states[folder]))
        room = max(3, height - 7)
        for folder in folders[:room]:
            table.add_row(visible(folder.name), self._states[folder], *self._cells(folder))
        if len(folders) > room:
            table.add_row(f"and {len(folders) - room} more")
        return table

    def _cells(self, folder: Path) -> tuple[str, str, str]:
        state, run = self._states[folder], self._runs[folder]
        if state in ("waiting", "failed"):
            return "", "", ""
        where = folder if state == "done" else run.current_folder
        return cells(progress_in(where, run.config), state)


def cells(now: RunProgress | None, state: str) -> tuple[str, str, str]:
    """Return task, accuracy so far and time left of a run."""
    if now is None:
        return "", "", ""
    task = f"{now.task + 1}/{now.tasks}" if now.tasks else str(now.task + 1)
    left = "" if state == "done" or now.seconds_left is None else duration(now.seconds_left)
    return task, _percent(now.accuracy), left


def _percent(value: float | None) -> str:
    return "" if value is None else f"{written(value, '.1f')} %"
