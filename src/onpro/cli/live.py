"""How many runs go, while they run: one table on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from onpro.experiments.executors import Event
from onpro.reports.plans import duration
from onpro.runs import RunConfig
from onpro.runs.status import Progress, progress
from onpro.text import visible, written

if TYPE_CHECKING:
    from rich.live import Live as RichLive
    from rich.table import Table

ORDER = ("running", "failed", "again", "waiting", "done")
"""What is shown first where there is no room for all."""

REFRESH_EVERY = 0.5
REPORT_EVERY = 60.0
"""Seconds between two lines that say how all is going, where there is no terminal."""


class Live:
    """Shows state, task, accuracy so far and time left of runs, from what they log."""

    def __init__(self, configs: Sequence[RunConfig], out: Path) -> None:
        self._out = out
        self._configs = {config.folder: config for config in configs}
        self._states = dict.fromkeys(self._configs, "waiting")
        self._screen: RichLive | None = None
        self._began = self._refreshed = time.monotonic()

    def __enter__(self) -> "Live":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live as RichLive

            self._screen = RichLive(self._table(), console=Console(stderr=True), auto_refresh=False)
            self._screen.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._screen:
            self._screen.update(self._table(), refresh=True)
            self._screen.stop()

    def show(self, event: Event) -> None:
        """Take note of what has happened to a run."""
        if event.config:
            self._note(event.kind, event.config, event.reason)
            if event.said:
                self._say(event.said)
        every = REFRESH_EVERY if self._screen else REPORT_EVERY
        if time.monotonic() - self._refreshed >= every:
            self._refreshed = time.monotonic()
            if self._screen:
                self._screen.update(self._table(), refresh=True)
            else:
                self._say(self._summary())

    def _note(self, kind: str, config: RunConfig, reason: str) -> None:
        states = {"started": "running", "finished": "done"}
        self._states[config.folder] = states.get(kind, kind)
        if kind == "finished":
            now = progress(config, self._out)
            accuracy = "" if now is None else _percent(now.accuracy)
            known = f", accuracy {accuracy}" if accuracy else ""
            self._say(f"finished: {config.folder}{known}, {self._summary()}")
        elif kind in ("failed", "again") or not self._screen:
            self._say(f"{kind}: {config.folder}{f': {visible(reason)}' if reason else ''}")

    def _say(self, line: str) -> None:
        if self._screen:
            self._screen.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=sys.stderr, flush=True)

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
            table.add_row(folder, self._states[folder], *self._cells(folder))
        if len(folders) > room:
            table.add_row(f"and {len(folders) - room} more")
        return table

    def _cells(self, folder: str) -> tuple[str, str, str]:
        if self._states[folder] in ("waiting", "failed"):
            return "", "", ""
        return cells(progress(self._configs[folder], self._out), self._states[folder])


def cells(now: Progress | None, state: str) -> tuple[str, str, str]:
    """Task, accuracy so far and time left of a run."""
    if now is None:
        return "", "", ""
    task = f"{now.task + 1}/{now.tasks}" if now.tasks else str(now.task + 1)
    left = "" if state == "done" or now.seconds_left is None else duration(now.seconds_left)
    return task, _percent(now.accuracy), left


def _percent(value: float | None) -> str:
    return "" if value is None else f"{written(value, '.1f')} %"
