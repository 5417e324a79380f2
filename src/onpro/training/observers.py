"""Events of a run, and the protocols of its listeners, its checkpointer and its probe."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from onpro.methods.registry import AnyMethod


@dataclass(frozen=True)
class StepEvent:
    """A logged training step."""

    step: int
    """Number of steps taken, this one included."""
    task: int
    terms: dict[str, float]
    """The terms of the loss."""
    images_seen: int
    """Number of training images passed through the network so far."""
    train_seconds: float
    elapsed_seconds: float
    """Wall-clock time of training, other runs side by side included; without evaluation and
    checkpoints."""


@dataclass(frozen=True)
class EvaluationEvent:
    """The evaluation after a task."""

    step: int
    task: int
    accuracy: list[float]
    """Accuracy in percent on each task seen so far."""
    train_seconds: float
    eval_seconds: float
    elapsed_seconds: float
    """See `StepEvent`."""


class Listener(Protocol):
    """Receives the events of a run, such as a log or a progress bar."""

    def on_step(self, step: StepEvent) -> None:
        """Handle a logged training step."""

    def on_evaluation(self, evaluated: EvaluationEvent) -> None:
        """Handle the evaluation of all tasks so far, after each task."""


class Checkpointer(Protocol):
    """Saves the state of a run, so that it can be resumed after an interruption."""

    def should_save(self, *, task_over: bool) -> bool:
        """Return whether to save the state now, without device sync.

        Called after every step, and with `task_over` after the evaluation of a task.
        """

    def should_stop(self) -> bool:
        """Return whether to save the state now and end the run; called after every step."""

    def stop_if_asked(self) -> None:
        """End the run by an exception if it should stop, without saving; called in rehearsals."""

    def save(self, state: dict[str, Any]) -> None:
        """Save a state whose loss and weights are finite; raise an exception to end the run."""


class Probe(Protocol):
    """Measures a method while it trains, without changing anything that training depends on."""

    def is_due(self, step: int) -> bool:
        """Return whether to measure after a step; called after every step, without device sync."""

    def measure(self, method: AnyMethod, step: int, task: int) -> None:
        """Measure the method after a step."""

    def state_dict(self) -> dict[str, Any]:
        """Return what was measured so far."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what was measured before."""
