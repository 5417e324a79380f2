"""The training loop: batches of the stream go to the method, which is evaluated after each task."""

import logging
import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.methods.registry import AnyMethod
from onpro.streams import Benchmark
from onpro.training.device import repeatable
from onpro.training.engine import Engine
from onpro.training.evaluation import accuracies, confusion_matrix
from onpro.training.stepper import Stepper

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Step:
    """A training step that is logged."""

    step: int
    """Number of steps taken, this one included."""
    task: int
    terms: dict[str, float]
    """The terms of the loss."""
    images_seen: int
    """Images through the network in training so far."""
    train_seconds: float
    elapsed_seconds: float
    """Training time with the turns of runs side by side, evaluation and checkpoints aside."""


@dataclass(frozen=True)
class Evaluated:
    """What the evaluation after a task found."""

    step: int
    task: int
    accuracy: list[float]
    """Percent on each task seen so far."""
    train_seconds: float
    eval_seconds: float
    elapsed_seconds: float
    """As of a step."""


class Listener(Protocol):
    """Anything that wants to know how a run goes: a log, a progress bar."""

    def on_step(self, step: Step) -> None:
        """A logged training step has been taken."""

    def on_evaluation(self, evaluated: Evaluated) -> None:
        """A task is over and all tasks so far have been evaluated."""


class Keeper(Protocol):
    """Saves the state of a run, so that it can be resumed after an interruption."""

    def due(self) -> bool:
        """Whether it wants the state; asked after every step, so that it must not ask a device."""

    def stopping(self) -> bool:
        """Whether the run is to end here, which `keep` does; asked after every step too."""

    def keep(self, state: dict[str, Any]) -> None:
        """Save a state whose loss and weights are finite; may raise to end the run here."""


class Trainer:
    """A method, a stream, and what has been measured so far.

    Attributes:
        train_seconds: time it took to train the run. Runs side by side divide the time they take
            together: on a CPU each has its own turns, on a GPU, which works for all of them at
            once, each has an equal part.
        elapsed_seconds: the same with the turns of other runs.
        shared_by: the largest number of runs that trained side by side in this process, with this
            one; 1 for a run alone.
    """

    def __init__(
        self,
        method: AnyMethod,
        stream: Benchmark,
        *,
        listeners: Sequence[Listener] = (),
        log_every: int = 50,
        deterministic: bool = False,
        engine: Engine = "eager",
    ) -> None:
        _require_test_images(stream)
        self.method = method
        self.stream = stream
        self.listeners = listeners
        self.keeper: Keeper | None = None
        self.log_every = log_every
        self.deterministic = deterministic
        self.stepper = Stepper(method, engine)
        self.accuracy: list[list[float]] = []
        self.confusion = torch.zeros(0, 0, dtype=torch.int64)
        self.train_seconds = 0.0
        self.eval_seconds = 0.0
        self.elapsed_seconds = 0.0
        self.shared_by = 1

    def run(self) -> None:
        """Train through the rest of the stream."""
        with repeatable(self.method.context.device, self.deterministic):
            for _ in self.steps():
                pass

    def steps(self) -> Generator[None, int | None, None]:
        """Train through the rest of the stream, handing over after each step.

        Whoever trains several runs side by side may send how many there are. The time until the
        next step is asked for is theirs and not counted.

        A loss or weight that is not finite ends the run; it is looked for only where the device is
        waited for anyway: at logged steps, before a state is kept, and before an evaluation.
        """
        if self._task_over():  # saved after a task's last step, before its evaluation
            self._close_task()
        clock = time.perf_counter()
        away, runs = 0.0, 1
        for batch in self.stream:
            terms = self.stepper.step(batch)
            position = self.stream.position
            task_over = self._task_over()
            logged = position % self.log_every == 0 or position == 1 or task_over
            due = self._due(task_over)
            if logged or due:
                values = _read(terms)  # waits for the device
                elapsed = time.perf_counter() - clock
                self.elapsed_seconds += elapsed
                self.train_seconds += elapsed / runs if self._on_gpu else elapsed - away
                away = 0.0
                if logged:
                    self._tell_step(values)
                self._require_finite_loss(values)
                if due:
                    self._require_finite_weights()
                    self._keep()
                clock = time.perf_counter()
            if task_over:
                self._close_task()
                clock = time.perf_counter()
            paused = time.perf_counter()
            runs = (yield) or 1
            self.shared_by = max(self.shared_by, runs)
            away += time.perf_counter() - paused

    def _due(self, task_over: bool) -> bool:
        """Whether the state is kept after this step; that of a task's end is kept anyway."""
        if self.keeper is None:
            return False
        return self.keeper.stopping() or (self.keeper.due() and not task_over)

    def _task_over(self) -> bool:
        """Whether the task that is to be evaluated next has had its last step."""
        evaluated = len(self.accuracy)
        end = sum(self.stream.steps_per_task[: evaluated + 1])
        return evaluated < self.stream.num_tasks and self.stream.position == end

    def _close_task(self) -> None:
        clock = time.perf_counter()
        self.stepper.finish_task()
        self._wait()
        elapsed = time.perf_counter() - clock
        self.elapsed_seconds += elapsed
        self.train_seconds += elapsed
        self._require_finite_weights()
        self._evaluate()
        self._keep()

    def _evaluate(self) -> None:
        clock = time.perf_counter()
        seen = range(len(self.accuracy) + 1)
        self.confusion = confusion_matrix(
            self.method, (self.stream.test(task) for task in seen), self.stream.num_classes
        )
        row = accuracies(self.confusion, [self.stream.task_classes[task] for task in seen])
        self.eval_seconds += time.perf_counter() - clock
        self.accuracy.append(row)
        evaluated = Evaluated(
            self.stream.position,
            len(row) - 1,
            row,
            self.train_seconds,
            self.eval_seconds,
            self.elapsed_seconds,
        )
        for listener in self.listeners:
            listener.on_evaluation(evaluated)
        self._warn_of_short_tasks()

    def _warn_of_short_tasks(self) -> None:
        """Say of the first task that was over before any of its images were recognised.

        Only where that is the method's nature: else it has other reasons than a short stream.
        """
        unknown = [task for task, row in enumerate(self.accuracy) if task and row[task] == 0]
        if unknown == [len(self.accuracy) - 1] and self.method.learns_new_by_replay_only:
            steps = self.stream.steps_per_task[unknown[0]]
            LOG.warning(
                "%s recognises no image of task %d after its %d steps: new classes reach its "
                "classifier through replay only, and the task is over before it has learned them; "
                "give tasks more steps, by more images, fewer tasks or smaller batches.",
                self.method.about.name,
                unknown[0] + 1,
                steps,
            )

    def _tell_step(self, terms: dict[str, float]) -> None:
        step = Step(
            self.stream.position,
            len(self.accuracy),
            terms,
            self.method.progress.images,
            self.train_seconds,
            self.elapsed_seconds,
        )
        for listener in self.listeners:
            listener.on_step(step)

    def _keep(self) -> None:
        if self.keeper is not None:
            self.keeper.keep(self.state_dict())

    def _require_finite_loss(self, terms: dict[str, float]) -> None:
        bad = ", ".join(f"{name} is {v}" for name, v in terms.items() if not math.isfinite(v))
        if bad:
            raise self._diverged(bad)

    def _require_finite_weights(self) -> None:
        finite = [
            tensor.isfinite().all()
            for tensor in self.method.network.state_dict().values()
            if tensor.is_floating_point()
        ]
        if not torch.stack(finite).all():
            raise self._diverged("weights of the network are not finite")

    def _diverged(self, what: str) -> UserError:
        """The error for a run that computes nothing of use any more."""
        coarse = " or the precision fp32" if self.method.context.autocast else ""
        return UserError(
            f"the training has diverged at step {self.stream.position}, in task "
            f"{len(self.accuracy) + 1} of {self.stream.num_tasks}: {what}; try a lower learning "
            f"rate{coarse}."
        )

    @property
    def _on_gpu(self) -> bool:
        return self.method.context.device.type == "cuda"

    def _wait(self) -> None:
        if self._on_gpu:
            torch.cuda.current_stream(self.method.context.device).synchronize()

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on from here."""
        return {
            "method": self.stepper.state_dict(),
            "stream": self.stream.state_dict(),
            "accuracy": self.accuracy,
            "confusion": self.confusion,
            "train_seconds": self.train_seconds,
            "eval_seconds": self.eval_seconds,
            "elapsed_seconds": self.elapsed_seconds,
            "shared_by": self.shared_by,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        self.stepper.load_state_dict(state["method"])
        self.stream.load_state_dict(state["stream"])
        self.accuracy = [list(row) for row in state["accuracy"]]
        self.confusion = state["confusion"]
        self.train_seconds = state["train_seconds"]
        self.eval_seconds = state["eval_seconds"]
        self.elapsed_seconds = state.get("elapsed_seconds", self.train_seconds)
        self.shared_by = state.get("shared_by", 1)


def _require_test_images(stream: Benchmark) -> None:
    for task, labels in enumerate(stream.task_classes):
        if not len(stream.test(task)):
            names = ", ".join(stream.classes[label] for label in labels)
            raise UserError(
                f"task {task + 1} of {stream.num_tasks} ({names}) has no test image: add some, or "
                "take fewer tasks."
            )


def _read(terms: Mapping[str, Tensor]) -> dict[str, float]:
    if not terms:
        return {}
    values = torch.stack([term.float() for term in terms.values()]).tolist()
    return dict(zip(terms, values, strict=True))
