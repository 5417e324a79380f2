"""How a run goes, while it runs: a bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Iterable
from statistics import fmean
from types import TracebackType
from typing import TYPE_CHECKING

from onpro.errors import counted
from onpro.reports.tasks import MOST
from onpro.streams import Benchmark
from onpro.text import written
from onpro.training import EvaluationEvent, StepEvent, Trainer

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID


class Bars:
    """A bar for each run on a terminal, plain lines elsewhere."""

    def __enter__(self) -> "Bars":
        self._bars = _bars() if sys.stderr.isatty() else None
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

    def add(self, stream: Benchmark) -> "TaskID | None":
        """A new bar, where bars are shown; it moves along the stream by itself."""
        if not self._bars:
            return None
        self._bars.start()  # only now, for loading the data shows progress of its own
        return self._bars.add_task("", total=len(stream), status="", stream=stream)

    def tell(self, bar: "TaskID | None", status: str) -> None:
        """Show a text beside a bar."""
        if self._bars and bar is not None:
            self._bars.update(bar, status=status)


class Follower:
    """Listens to a run and shows task, step, loss terms, images per second and time left."""

    def __init__(self, bars: Bars, trainer: Trainer, *, label: str, name: str) -> None:
        self._bars = bars
        self._name = f"{name}, " if name else ""
        self._stream = trainer.stream
        bars.say(f"{label}: {counted(len(self._stream), 'step')}")
        self._bar = bars.add(self._stream)
        self._figures = ""

    def on_step(self, step: StepEvent) -> None:
        """Say it beside the bar."""
        loss = " ".join(f"{name} {value:.2f}" for name, value in step.terms.items())
        speed = step.images_seen / step.elapsed_seconds if step.elapsed_seconds else 0.0
        self._figures = f"{speed:,.0f} images/s  {loss}"
        self._tell(step.task)

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Say how the tasks so far are known: each where there are few, always their mean."""
        mean = fmean(evaluated.accuracy)
        each = " ".join(written(value, ".1f") for value in evaluated.accuracy)
        each = f" ({each})" if self._stream.num_tasks <= MOST else ""
        self._bars.say(
            f"{self._name}task {evaluated.task + 1}/{self._stream.num_tasks}, "
            f"step {evaluated.step}/{len(self._stream)}: "
            f"accuracy {written(mean, '.1f')} %{each}, {evaluated.train_seconds:.1f} s"
        )
        self._tell(min(evaluated.task + 1, self._stream.num_tasks - 1))

    def _tell(self, task: int) -> None:
        about = f"{self._name}task {task + 1}/{self._stream.num_tasks}  {self._figures}"
        self._bars.tell(self._bar, about)


def _bars() -> "RichProgress":
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column

    class AlongStreams(RichProgress):
        """Looks how far each stream is whenever it is drawn, so that no step has to tell it."""

        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.tasks:
                self.update(task.id, completed=task.fields["stream"].position)
            return super().get_renderables()

    return AlongStreams(
        BarColumn(bar_width=12, table_column=Column(min_width=12)),
        MofNCompleteColumn(table_column=Column(min_width=9, no_wrap=True)),
        TimeRemainingColumn(table_column=Column(min_width=7, no_wrap=True)),
        TextColumn(
            "{task.fields[status]}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1),
        ),
        console=Console(stderr=True),
        expand=True,  # for then the text is cut, and not the bar
    )
