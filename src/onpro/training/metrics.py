"""Metrics of a run, computed from its matrix of accuracies and from its accuracy over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from onpro.training.evaluation import CueRates


@dataclass(frozen=True)
class Metrics:
    """Summaries of a[i, j], the accuracy in percent on task j after training through task i."""

    average_accuracy: float
    """Mean of the last row."""
    average_forgetting: float
    """Best accuracy so far minus the last, over all tasks (the last counts 0), the last row among
    the candidates for the best: what the official code computes and the paper's tables show."""
    average_forgetting_strict: float
    """The paper's definition: over all tasks but the last, the best of the earlier rows."""
    average_incremental_accuracy: float
    """Mean over rows of the mean accuracy on the tasks seen by then."""
    backward_transfer: float
    """Mean of a[i, j] − a[j, j] for i > j, but at least 0."""
    forward_transfer: float
    """Mean of a[i, j] for j > i; 0 where unseen tasks are not evaluated."""
    learning_accuracy: float
    """Mean of a[i, i]: how well a task is learned when it is new."""
    relative_forgetting: float
    """Forgetting of each task as a share of its best accuracy; a task never learned counts 1."""

    @classmethod
    def of(cls, accuracy: Sequence[Sequence[float | None]]) -> "Metrics":
        """Compute the metrics of a T×T matrix; missing values (None, short rows) count 0.

        Args:
            accuracy: As in `result.json`, or `Trainer.accuracy` at the end of the stream.
        """
        tasks = len(accuracy)
        if not tasks or not all(i < len(row) <= tasks for i, row in enumerate(accuracy)):
            raise ValueError("the accuracies must form a square matrix, or its lower triangle")
        a = np.zeros((tasks, tasks))
        for task, row in enumerate(accuracy):
            a[task, : len(row)] = [0.0 if value is None else value for value in row]
        last, best = a[-1], a.max(axis=0)
        pairs = tasks * (tasks - 1) / 2 or 1
        below, above = np.tril(np.ones_like(a), -1), np.triu(np.ones_like(a), 1)
        strict = (a[:-1].max(axis=0) - last)[:-1] if tasks > 1 else np.zeros(1)
        share = np.where(best > 0, (best - last) / np.where(best > 0, best, 1), 1.0)
        seen_so_far = [row[: i + 1].mean() for i, row in enumerate(a)]
        return cls(
            average_accuracy=float(last.mean()),
            average_forgetting=float((best - last).mean()),
            average_forgetting_strict=float(strict.mean()),
            average_incremental_accuracy=float(np.mean(seen_so_far)),
            backward_transfer=max(0.0, float(((a - a.diagonal()) * below).sum() / pairs)),
            forward_transfer=float((a * above).sum() / pairs),
            learning_accuracy=float(a.diagonal().mean()),
            relative_forgetting=float(share[:-1].sum() / tasks),
        )


@dataclass(frozen=True)
class CueMetrics:
    """Summaries of a run on a stream with a shortcut, in percent.

    After the last task they are means over tasks; `_new` is the mean over tasks of the values on a
    task right after it was learned.
    """

    no_cue_accuracy: float
    """The average accuracy, of images without a cue."""
    true_cue_accuracy: float
    """Average accuracy on images with the cue of their class."""
    wrong_cue_accuracy: float
    """Average accuracy on images with the cue of another class of the same task."""
    shortcut_reliance: float
    """Accuracy with the true cue minus accuracy without."""
    shortcut_reliance_new: float
    cue_following: float
    """Share of images with a wrong cue that are classified as the class whose cue it is."""
    cue_following_new: float
    cue_following_any: float
    """As `cue_following`, if a class of another task with the same cue counts too."""
    cue_control: float
    """As `cue_following`, of the same images without a cue: what other confusion explains."""
    cue_control_new: float
    cue_control_any: float
    """As `cue_following_any`, of the same images without a cue."""

    @classmethod
    def of(
        cls, accuracy: Sequence[Sequence[float | None]], rates: Sequence[Sequence[CueRates]]
    ) -> "CueMetrics":
        """Compute the metrics.

        Args:
            accuracy: Accuracy without cues on each task, one row after each task.
            rates: `Trainer.cue_rates` at the end of the stream.
        """
        last = np.array(rates[-1]).mean(axis=0)
        new = np.array([row[task] for task, row in enumerate(rates)]).mean(axis=0)
        end = CueRates(*last.tolist())
        fresh = CueRates(*new.tolist())
        metrics = Metrics.of(accuracy)
        return cls(
            no_cue_accuracy=metrics.average_accuracy,
            true_cue_accuracy=end.true_cue,
            wrong_cue_accuracy=end.wrong_cue,
            shortcut_reliance=end.true_cue - metrics.average_accuracy,
            shortcut_reliance_new=fresh.true_cue - metrics.learning_accuracy,
            cue_following=end.following,
            cue_following_new=fresh.following,
            cue_following_any=end.following_any,
            cue_control=end.control,
            cue_control_new=fresh.control,
            cue_control_any=end.control_any,
        )


class CurvePoint(NamedTuple):
    """An evaluation on all classes seen so far."""

    step: int
    images: int
    """Number of images of the stream seen by then."""
    accuracy: float
    """Percentage of the test images of these classes that are classified correctly."""


def anytime_accuracy(curve: Sequence[CurvePoint]) -> float:
    """Return the area under the accuracy over images seen, divided by the number of images.

    An accuracy counts for the images since the evaluation before it, so for evaluations at equal
    distances it is their mean: A_AUC of Koh et al. (2022).

    >>> anytime_accuracy([CurvePoint(1, 10, 90.0), CurvePoint(4, 40, 50.0)])
    60.0
    """
    starts = [0, *(point.images for point in curve[:-1])]
    area = sum(
        point.accuracy * (point.images - start) for point, start in zip(curve, starts, strict=True)
    )
    return area / curve[-1].images
