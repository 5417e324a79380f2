"""The kinds of streams; `docs/streams.md` has their equations and sources."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from onpro.streams.registry import Integers, StreamKind, Times, register


@register("disjoint", "each class in one task, tasks one after the other")
@dataclass(frozen=True)
class Disjoint(StreamKind):
    """The stream of the paper."""

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """The task of the image's class."""
        return task_of[labels].astype(np.float64)


@register("blurry", "a share of each task's images comes from the classes of other tasks")
@dataclass(frozen=True)
class Blurry(StreamKind):
    """Rainbow Memory's blurry-M (Bang et al., 2021)."""

    blur: float = 10.0
    """M: percentage of the images of each task that arrive in other tasks (default from Rainbow
    Memory)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        self.require_between(0, 100, "blur")

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """M % of each task's images are dealt to the other tasks, the rest stay."""
        home = task_of[labels]
        tasks = np.arange(task_of[-1] + 1)
        times = home.astype(np.float64)
        for task in tasks if len(tasks) > 1 else ():
            leaving = _part(np.flatnonzero(home == task), self.blur, random)
            times[leaving] = _dealt(len(leaving), tasks[tasks != task], random)
        return times


@register("i-blurry", "some classes disjoint, a share of the others' images in any task")
@dataclass(frozen=True)
class IBlurry(StreamKind):
    """i-Blurry-N-M (Koh et al., 2022), whose boundaries are not announced."""

    announced = False

    disjoint_classes: float = 50.0
    """N: percentage of classes that arrive in one task only (default from Koh et al.)."""

    blur: float = 10.0
    """M: percentage of the images of every other class that arrive in any task (default from Koh
    et al.)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        self.require_between(0, 100, "disjoint_classes", "blur")

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """M % of the images of each blurry class are pooled and dealt to all tasks."""
        times = task_of[labels].astype(np.float64)
        blurry = _evenly(task_of, random)[_share(len(task_of), self.disjoint_classes) :]
        pool = np.concatenate(
            [_part(np.flatnonzero(labels == k), self.blur, random) for k in blurry]
            or [np.zeros(0, np.int64)]
        )
        tasks = np.arange(task_of[-1] + 1)
        times[random.permutation(pool)] = _dealt(len(pool), tasks, random)
        return times


@register("gaussian", "classes come and go gradually, without tasks")
@dataclass(frozen=True)
class Gaussian(StreamKind):
    """Each class is most frequent at its peak (Shanahan et al., 2021)."""

    has_tasks = announced = False

    deviation: float = 10.0
    """Standard deviation of a class's arrival times, in percent of the stream (default from Koh et
    al., 2023)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        self.require_between(0, 1000, "deviation")

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """A normal variable around the peak of the class; peaks are evenly spaced in 0…1."""
        peaks = (np.arange(len(task_of)) + 0.5) / len(task_of)
        return random.normal(peaks[labels], self.deviation / 100)


@register("long-tail", "disjoint tasks with classes of exponentially decreasing size")
@dataclass(frozen=True)
class LongTail(StreamKind):
    """Long-tailed class-incremental learning (Liu et al., 2022)."""

    imbalance: float = 100.0
    """Size of the largest class divided by that of the smallest (default from Liu et al.)."""

    sizes: Literal["shuffled", "ordered"] = "shuffled"
    """Whether sizes are assigned to classes at random, or decrease in the order of arrival."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        self.require_between(1, 1e6, "imbalance")

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """The k-th of C classes keeps r^(−k/(C−1)) of its images; the others never arrive."""
        classes = len(task_of)
        ranks = np.arange(classes)
        if self.sizes == "shuffled":
            ranks = random.permutation(ranks)
        kept = 100 * self.imbalance ** -(ranks / max(1, classes - 1))
        times = np.full(len(labels), np.nan)
        for k in range(classes):
            images = _part(np.flatnonzero(labels == k), kept[k], random, at_least=1)
            times[images] = task_of[k]
        return times


@register("repeating", "classes come back in later tasks, with other images")
@dataclass(frozen=True)
class Repeating(StreamKind):
    """Class-incremental learning with repetition (Hemati et al., 2023)."""

    repetition: float = 30.0
    """Chance in percent that a class comes back in a task after its first (default ours)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        self.require_between(0, 100, "repetition")

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """The images of a class are divided evenly among the tasks in which it occurs."""
        times = np.empty(len(labels))
        for k, first in enumerate(task_of):
            later = np.arange(first + 1, task_of[-1] + 1)
            back = later[random.random(len(later)) < self.repetition / 100]
            images = random.permutation(np.flatnonzero(labels == k))
            times[images] = np.resize(np.append(first, back), len(images))
        return times


@register("random", "all classes mixed from the start, without tasks")
@dataclass(frozen=True)
class Random(StreamKind):
    """Independent and identically distributed images, for one epoch."""

    has_tasks = announced = False

    def arrivals(self, labels: Integers, task_of: Integers, random: np.random.Generator) -> Times:
        """The same time for all."""
        return np.zeros(len(labels))


def _share(count: int, percent: float) -> int:
    return round(count * percent / 100)


def _part(
    images: Integers, percent: float, random: np.random.Generator, at_least: int = 0
) -> Integers:
    """Return a random part of some images."""
    return random.permutation(images)[: max(at_least, _share(len(images), percent))]


def _dealt(count: int, tasks: Integers, random: np.random.Generator) -> Integers:
    """Return tasks for so many images: each as often as the others, up to one."""
    return np.resize(random.permutation(tasks), count)


def _evenly(task_of: Integers, random: np.random.Generator) -> Integers:
    """Return the classes in a random order that takes one of each task in turn."""
    order = random.permutation(len(task_of))
    turn = np.empty(len(task_of))
    for task in range(task_of[-1] + 1):
        own = order[task_of[order] == task]
        turn[own] = np.arange(len(own))
    return order[turn[order].argsort(kind="stable")]
