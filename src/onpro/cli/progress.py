"""How a run goes, while it runs: a bar on a terminal, plain lines elsewhere."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING

from onpro.training import Evaluated, Step, Trainer

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress


class Progress:
    """Listens to a run and shows task, step, loss terms, images per second and time left."""

    def __init__(self, trainer: Trainer, *, label: str) -> None:
        self._stream = trainer.stream
        self._label = label
        self._bar: RichProgress | None = None

    def __enter__(self) -> "Progress":
        print(f"{self._label}: {len(self._stream)} steps", file=sys.stderr)
        if sys.stderr.isatty():
            self._bar = _bar()
            self._bar.start()
            self._task = self._bar.add_task("", total=len(self._stream), status="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def on_step(self, step: Step) -> None:
        """Move the bar."""
        if not self._bar:
            return
        loss = " ".join(f"{name} {value:.2f}" for name, value in step.terms.items())
        speed = step.images_seen / step.train_seconds if step.train_seconds else 0.0
        status = f"task {step.task + 1}/{self._stream.num_tasks}  {speed:,.0f} images/s  {loss}"
        self._bar.update(self._task, completed=step.step, status=status)

    def on_evaluation(self, evaluated: Evaluated) -> None:
        """Say how the tasks so far are known."""
        mean = sum(evaluated.accuracy) / len(evaluated.accuracy)
        each = " ".join(f"{value:.1f}" for value in evaluated.accuracy)
        line = (
            f"task {evaluated.task + 1}/{self._stream.num_tasks}, "
            f"step {evaluated.step}/{len(self._stream)}: "
            f"accuracy {mean:.1f} % ({each}), {evaluated.train_seconds:.1f} s"
        )
        if self._bar:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr)


def _bar() -> "RichProgress":
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
