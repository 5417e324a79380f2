"""How a run goes, while it runs: a bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from onpro.reports.tasks import MOST
from onpro.training import Evaluated, Step, Trainer

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Bars:
    """A bar for each run on a terminal, plain lines elsewhere."""

    def __enter__(self) -> "Bars":
        self._bars = _bars() if sys.stderr.isatty() else None
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars:
            self._bars.stop()

    def follow(self, trainer: Trainer, *, label: str, name: str = "") -> "Follower":
        """What listens to a run and shows it here, with a name if it is one of several."""
        return Follower(self, trainer, label=label, name=name)

    def say(self, line: str) -> None:
        """Print a line, above the bars."""
        if self._bars:
            self._bars.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr)

    def add(self, total: int) -> "TaskID | None":
        """A new bar, where bars are shown."""
        return self._bars.add_task("", total=total, status="") if self._bars else None

    def move(self, bar: "TaskID | None", completed: int, status: str) -> None:
        """Show how far a run is."""
        if self._bars and bar is not None:
            self._bars.update(bar, completed=completed, status=status)


class Follower:
    """Listens to a run and shows task, step, loss terms, images per second and time left."""

    def __init__(self, bars: Bars, trainer: Trainer, *, label: str, name: str) -> None:
        self._bars = bars
        self._name = f"{name}, " if name else ""
        self._stream = trainer.stream
        bars.say(f"{label}: {len(self._stream)} steps")
        self._bar = bars.add(len(self._stream))

    def on_step(self, step: Step) -> None:
        """Move the bar."""
        loss = " ".join(f"{name} {value:.2f}" for name, value in step.terms.items())
        speed = step.images_seen / step.train_seconds if step.train_seconds else 0.0
        task = f"{self._name}task {step.task + 1}/{self._stream.num_tasks}"
        status = f"{task}  {speed:,.0f} images/s  {loss}"
        self._bars.move(self._bar, step.step, status)

    def on_evaluation(self, evaluated: Evaluated) -> None:
        """Say how the tasks so far are known: each where there are few, always their mean."""
        mean = sum(evaluated.accuracy) / len(evaluated.accuracy)
        each = " ".join(f"{value:.1f}" for value in evaluated.accuracy)
        each = f" ({each})" if self._stream.num_tasks <= MOST else ""
        self._bars.say(
            f"{self._name}task {evaluated.task + 1}/{self._stream.num_tasks}, "
            f"step {evaluated.step}/{len(self._stream)}: "
            f"accuracy {mean:.1f} %{each}, {evaluated.train_seconds:.1f} s"
        )


def _bars() -> "RichProgress":
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    return RichProgress(
        BarColumn(bar_width=12),
        MofNCompleteColumn(table_column=Column(min_width=9, no_wrap=True)),
        TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
        TextColumn(
            "{task.fields[status]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)
        ),
        console=Console(stderr=True),
    )
