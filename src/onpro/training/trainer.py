"""The training loop: train a method on a stream and evaluate it on the way."""

import logging
import math
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from onpro.errors import UserError
from onpro.methods.registry import AnyMethod
from onpro.nn import float32_by_default
from onpro.streams import Benchmark, ClassIncremental
from onpro.training.device import deterministic_mode
from onpro.training.engine import Engine
from onpro.training.evaluation import (
    CueRates,
    accuracies,
    accuracy_on,
    class_accuracies,
    confusion_and_cue_rates,
    confusion_matrix,
)
from onpro.training.metrics import CurvePoint
from onpro.training.observers import Checkpointer, EvaluationEvent, Listener, Probe, StepEvent
from onpro.training.stepper import Stepper

LOG = logging.getLogger(__name__)


class _Evaluations(threading.local):
    """Time that the runs of a thread have spent on evaluations; no run takes a step meanwhile."""

    seconds = 0.0


_evaluations = _Evaluations()


class Trainer:
    """Trains a method on a stream and evaluates it after each task, and where the stream says so.

    An evaluation changes nothing that later training depends on.

    Attributes:
        accuracy: Accuracy in percent on each task so far, one row after each task.
        curve: Accuracy on all classes seen so far, at each evaluation.
        confusion: Confusion matrix of the last evaluation.
        class_accuracy: Accuracy in percent on each class, at each evaluation; None for a class
            that was not evaluated.
        memory_content: Number of images of each class in the memory, at each evaluation.
        cue_rates: What cues change on each task so far, one row after each task; empty for streams
            without a shortcut.
        train_seconds: Training time of this run. Runs side by side share their total: on a CPU
            each counts its own steps, on a GPU, which computes for all at once, an equal part.
        elapsed_seconds: Training time including the steps of runs side by side.
        shared_by: Largest number of runs that trained side by side in this process, this one
            included; 1 for a run alone.
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
        self.checkpointer: Checkpointer | None = None
        self.probe: Probe | None = None
        self.log_every = log_every
        self.deterministic = deterministic
        self.stepper = Stepper(method, engine)
        self.accuracy: list[list[float]] = []
        self.curve: list[CurvePoint] = []
        self.confusion = torch.zeros(0, 0, dtype=torch.int64)
        self.class_accuracy: list[list[float | None]] = []
        self.memory_content: list[list[int]] = []
        self.cue_rates: list[list[CueRates]] = []
        self.train_seconds = 0.0
        self.eval_seconds = 0.0
        self.elapsed_seconds = 0.0
        self.shared_by = 1

    @float32_by_default()
    def run(self) -> None:
        """Train on the rest of the stream."""
        with deterministic_mode(self.method.context.device, self.deterministic):
            for _ in self.steps():
                pass

    def steps(self) -> Generator[None, int | None, None]:
        """Train on the rest of the stream, yielding after each step.

        A caller that trains several runs side by side may send their number. The time spent outside
        the generator is not counted, nor that of other runs' evaluations.

        A loss or weight that is not finite ends the run. It is checked only where a host–device
        sync happens anyway: at logged steps, before a checkpoint, an evaluation or a measurement of
        the probe.
        """
        if self.checkpointer is not None:  # a rehearsal, which may take minutes, can be stopped
            self.stepper.before_rehearsing = self.checkpointer.stop_if_asked
        if self._evaluation_due():  # resumed between a step and the evaluation after it
            self._evaluate()
        clock, evaluated = time.perf_counter(), _evaluations.seconds
        away, runs = 0.0, 1
        for batch in self.stream:
            terms = self.stepper.step(batch)
            position = self.stream.position
            due, task_over = self._evaluation_due(), self._task_over()
            logged = position % self.log_every == 0 or position == 1 or task_over
            saving = self._should_stop() or (not task_over and self._should_save())
            probe = self.probe if self.probe and self.probe.is_due(position) else None
            if logged or saving or due or probe:
                values = _read(terms)  # host–device sync
                passed = time.perf_counter() - clock
                elapsed = passed - (_evaluations.seconds - evaluated)
                self.elapsed_seconds += elapsed
                self.train_seconds += elapsed / runs if self._on_gpu else passed - away
                away = 0.0
                if logged:
                    self._report_step(values)
                self._require_finite_loss(values)
                if probe:
                    probe.measure(self.method, position, len(self.accuracy))
                if saving:
                    self._require_finite_weights()
                    self._save()
                clock, evaluated = time.perf_counter(), _evaluations.seconds
            if due:
                self._evaluate()
                clock, evaluated = time.perf_counter(), _evaluations.seconds
            paused = time.perf_counter()
            runs = (yield) or 1
            self.shared_by = max(self.shared_by, runs)
            away += time.perf_counter() - paused

    def _should_stop(self) -> bool:
        return self.checkpointer is not None and self.checkpointer.should_stop()

    def _should_save(self, *, task_over: bool = False) -> bool:
        """Return whether to save the state; at the end of a task that waits for the evaluation."""
        return self.checkpointer is not None and self.checkpointer.should_save(task_over=task_over)

    def _evaluation_due(self) -> bool:
        """Return whether all steps before the next evaluation are done."""
        steps, evaluated = self.stream.evaluation_steps, len(self.curve)
        return evaluated < len(steps) and self.stream.position == steps[evaluated]

    def _task_over(self) -> bool:
        """Return whether all steps of the task to be evaluated next are done."""
        evaluated = len(self.accuracy)
        end = sum(self.stream.steps_per_task[: evaluated + 1])
        return evaluated < self.stream.num_tasks and self.stream.position == end

    def _evaluate(self) -> None:
        """Evaluate; at the end of a task, finish it before and save the state after, if it is due.

        The last state is saved in any case: the result that follows may find no room on the disk.
        """
        task_over = self._task_over()
        over = self.stream.position == len(self.stream)
        if task_over and (self.stream.announces_tasks or over):
            self._finish_task()
        self._require_finite_weights()
        clock = time.perf_counter()
        self._settle()
        self._test(task_over)
        elapsed = time.perf_counter() - clock
        self.eval_seconds += elapsed
        _evaluations.seconds += elapsed
        if task_over:
            self._report_evaluation()
            self._warn_of_short_tasks()
            if over or self._should_stop() or self._should_save(task_over=True):
                self._save()

    def _finish_task(self) -> None:
        clock = time.perf_counter()
        self.stepper.finish_task()
        self._wait()
        elapsed = time.perf_counter() - clock
        self.elapsed_seconds += elapsed
        self.train_seconds += elapsed

    def _settle(self) -> None:
        """Make predictions reflect all that is stored; what that takes is no part of training."""
        images = self.method.progress.images
        self.stepper.settle()
        self.method.progress.images = images

    def _test(self, task_over: bool) -> None:
        """Predict the test images of all tasks so far and of all classes seen so far."""
        stream, seen = self.stream, self.method.progress.seen
        so_far = range(len(self.accuracy) + task_over)
        tasks = [
            task
            for task, labels in enumerate(stream.task_classes)
            if task in so_far or not seen.isdisjoint(labels)
        ]
        if task_over and isinstance(stream, ClassIncremental) and stream.cues:
            tests = ((stream.test(task), stream.other_labels(task)) for task in tasks)
            self.confusion, rates = confusion_and_cue_rates(
                self.method, tests, stream.num_classes, stream.cues
            )
            self.cue_rates.append(rates)
        else:
            self.confusion = confusion_matrix(
                self.method, (stream.test(task) for task in tasks), stream.num_classes
            )
        images = stream.images_after(stream.position)
        point = CurvePoint(stream.position, images, accuracy_on(self.confusion, seen))
        self.curve.append(point)
        self.class_accuracy.append(class_accuracies(self.confusion))
        stored = self.method.memory.labels
        self.memory_content.append(torch.bincount(stored, minlength=stream.num_classes).tolist())
        if task_over:
            self.accuracy.append(
                accuracies(self.confusion, [stream.task_classes[task] for task in so_far])
            )

    def _report_evaluation(self) -> None:
        row = self.accuracy[-1]
        event = EvaluationEvent(
            self.stream.position,
            len(row) - 1,
            row,
            self.train_seconds,
            self.eval_seconds,
            self.elapsed_seconds,
        )
        for listener in self.listeners:
            listener.on_evaluation(event)

    def _warn_of_short_tasks(self) -> None:
        """Warn once, if a task ends before any of its images are recognised.

        Only for methods that learn new classes by replay alone; others have another reason.
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

    def _report_step(self, terms: dict[str, float]) -> None:
        event = StepEvent(
            self.stream.position,
            len(self.accuracy),
            terms,
            self.method.progress.images,
            self.train_seconds,
            self.elapsed_seconds,
        )
        for listener in self.listeners:
            listener.on_step(event)

    def _save(self) -> None:
        if self.checkpointer is not None:
            self.checkpointer.save(self.state_dict())

    def _require_finite_loss(self, terms: dict[str, float]) -> None:
        bad = ", ".join(f"{name} is {v}" for name, v in terms.items() if not math.isfinite(v))
        if bad:
            raise self._diverged(bad)

    def _require_finite_weights(self) -> None:
        finite = [
            tensor.isfinite().all()
            for learner in self.method.learners
            for tensor in learner.network.state_dict().values()
            if tensor.is_floating_point()
        ]
        if not torch.stack(finite).all():
            raise self._diverged("weights of the network are not finite")

    def _diverged(self, what: str) -> UserError:
        """Return the error for a run whose loss or weights are not finite."""
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
        """Return everything needed to resume the run."""
        return {
            "method": self.stepper.state_dict(),
            "stream": self.stream.state_dict(),
            "accuracy": self.accuracy,
            "curve": [list(point) for point in self.curve],
            "confusion": self.confusion,
            "class_accuracy": self.class_accuracy,
            "memory_content": self.memory_content,
            "probe": self.probe.state_dict() if self.probe else None,
            "cue_rates": [[list(rates) for rates in row] for row in self.cue_rates],
            "train_seconds": self.train_seconds,
            "eval_seconds": self.eval_seconds,
            "elapsed_seconds": self.elapsed_seconds,
            "shared_by": self.shared_by,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        self.stepper.load_state_dict(state["method"])
        self.stream.load_state_dict(state["stream"])
        self.accuracy = [list(row) for row in state["accuracy"]]
        self.curve = [CurvePoint(*point) for point in state["curve"]]
        self.confusion = state["confusion"]
        unknown: list[list[Any]] = [[]] * len(self.curve)  # older versions did not save them
        self.class_accuracy = list(state.get("class_accuracy", unknown))
        self.memory_content = list(state.get("memory_content", unknown))
        if self.probe and state.get("probe"):
            self.probe.load_state_dict(state["probe"])
        rows = state.get("cue_rates", [])
        self.cue_rates = [[CueRates(*rates) for rates in row] for row in rows]
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
