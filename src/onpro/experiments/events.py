"""The log of a run: one line of JSON for each logged step and each evaluation."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

from onpro.training import Evaluated, Step


class EventLog:
    """Appends what happens to `events.jsonl`, each line written through at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w", buffering=1)

    def on_step(self, step: Step) -> None:
        """Log a training step."""
        terms = {name: v if math.isfinite(v) else None for name, v in step.terms.items()}
        self._write("step", asdict(step) | {"terms": terms})  # JSON knows neither NaN nor ∞

    def on_evaluation(self, evaluated: Evaluated) -> None:
        """Log an evaluation."""
        self._write("evaluation", asdict(evaluated))

    def _write(self, kind: str, event: dict[str, Any]) -> None:
        self._file.write(json.dumps({"event": kind, **event}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLog:
    """The same events for TensorBoard."""

    def __init__(self, folder: Path) -> None:
        from onpro.errors import UserError

        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "TensorBoard is not installed: "
                "pip install 'onpro[track]', or leave --tensorboard out."
            ) from None
        self._writer = SummaryWriter(folder)

    def on_step(self, step: Step) -> None:
        """Log the terms of the loss."""
        for name, value in step.terms.items():
            self._add(f"loss/{name}", value, step.step)

    def on_evaluation(self, evaluated: Evaluated) -> None:
        """Log the accuracy on every task."""
        for task, accuracy in enumerate(evaluated.accuracy):
            self._add(f"accuracy/task {task}", accuracy, evaluated.step)
        mean = sum(evaluated.accuracy) / len(evaluated.accuracy)
        self._add("accuracy/average", mean, evaluated.step)

    def _add(self, name: str, value: float, step: int) -> None:
        self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Write what is left."""
        self._writer.close()
