"""Event logs of a run: `events.jsonl` and TensorBoard."""

import json
import logging
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onpro.errors import UserError
from onpro.files import open_plain, read_plain
from onpro.training import EvaluationEvent, StepEvent

LOG = logging.getLogger(__name__)


class EventLog:
    """Log of a run: one line of JSON for each logged step and each evaluation, flushed at once.

    Args:
        path: The file.
        valid: Size of the log at the checkpoint that a run resumes from. Later lines are removed:
            the run logs them again.
    """

    def __init__(self, path: Path, valid: int = 0) -> None:
        logged = read_plain(path, follow_links=False)[:valid] if valid and path.exists() else b""
        lines = logged.rfind(b"\n") + 1
        if lines < valid:
            LOG.warning("%s is not complete: a part of what the run logged is lost.", path)
        self._file = open_plain(path, "ab")
        self._file.truncate(lines)

    def on_step(self, step: StepEvent) -> None:
        """Log a training step."""
        terms = {name: v if math.isfinite(v) else None for name, v in step.terms.items()}
        self._write("step", asdict(step) | {"terms": terms})  # JSON knows neither NaN nor ∞

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Log an evaluation."""
        self._write("evaluation", asdict(evaluated))

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        self._file.write(json.dumps({"event": kind, **event}).encode() + b"\n")
        self._file.flush()

    def size(self) -> int:
        """Sync the file to disk and return its size in bytes."""
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def scalars_of_step(step: StepEvent) -> dict[str, float]:
    """Return the terms of the loss, by the names shown in trackers."""
    return {f"loss/{name}": value for name, value in step.terms.items()}


def scalars_of_evaluation(evaluated: EvaluationEvent) -> dict[str, float]:
    """Return the accuracy on each task and its mean, by the names shown in trackers."""
    each = {f"accuracy/task {task}": value for task, value in enumerate(evaluated.accuracy)}
    return each | {"accuracy/average": sum(evaluated.accuracy) / len(evaluated.accuracy)}


class TensorBoardLog:
    """Log of a run for TensorBoard.

    Args:
        folder: The folder of the event files.
        step: Step that the run resumes from; TensorBoard discards later ones.
    """

    def __init__(self, folder: Path, step: int = 0) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "TensorBoard is not installed: "
                "pip install 'onpro[track]', or leave --tensorboard out."
            ) from None
        self._writer = SummaryWriter(folder, purge_step=step + 1 if step else None)

    def on_step(self, step: StepEvent) -> None:
        """Log the terms of the loss."""
        self._add(scalars_of_step(step), step.step)

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Log the accuracy on each task."""
        self._add(scalars_of_evaluation(evaluated), evaluated.step)

    def _add(self, values: dict[str, float], step: int) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close the file."""
        self._writer.close()
