"""The kinds of streams; `docs/streams.md` has their equations and sources."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from random import Random as Generator
from typing import Literal

from onpro.streams.registry import StreamKind, register


@register("disjoint", "each class in one task, tasks one after the other")
@dataclass(frozen=True)
class Disjoint(StreamKind):
    """The stream of the paper."""

    separates_classes = True

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """The task of the image's class."""
        return [task_of[label] for label in labels]


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

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """M % of each task's images are dealt to the other tasks, the rest stay."""
        times: list[float] = [task_of[label] for label in labels]
        tasks = range(task_of[-1] + 1)
        for task, images in enumerate(_images_of(times, len(tasks))):
            leaving = _part(images, self.blur, random)
            others = [other for other in tasks if other != task]
            for image, other in zip(leaving, _dealt(others, random), strict=False):
                times[image] = other
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

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """M % of the images of each blurry class are pooled and dealt to all tasks."""
        times: list[float] = [task_of[label] for label in labels]
        classes = _in_turn(task_of, random)
        blurry = classes[_share(len(classes), self.disjoint_classes) :]
        images_of = _images_of(labels, len(classes))
        pool = [image for k in blurry for image in _part(images_of[k], self.blur, random)]
        random.shuffle(pool)
        for image, task in zip(pool, _dealt(range(task_of[-1] + 1), random), strict=False):
            times[image] = task
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

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """A normal variable around the peak of the class; peaks are evenly spaced in 0…1."""
        classes = len(task_of)
        return [random.gauss((label + 0.5) / classes, self.deviation / 100) for label in labels]


@register("long-tail", "disjoint tasks with classes of exponentially decreasing size")
@dataclass(frozen=True)
class LongTail(StreamKind):
    """Long-tailed class-incremental learning (Liu et al., 2022)."""

    separates_classes = True

    imbalance: float = 100.0
    """Size of the largest class divided by that of the smallest (default from Liu et al.)."""

    sizes: Literal["shuffled", "ordered"] = "shuffled"
    """Whether sizes are assigned to classes at random, or decrease in the order of arrival (default
    ours)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        self.require_between(1, 1e6, "imbalance")

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """The k-th of C classes keeps r^(−k/(C−1)) of its images; the others never arrive."""
        times = [math.nan] * len(labels)
        ranked = list(range(len(task_of)))
        if self.sizes == "shuffled":
            random.shuffle(ranked)
        images_of = _images_of(labels, len(task_of))
        for rank, k in enumerate(ranked):
            kept = 100 * self.imbalance ** -(rank / max(1, len(ranked) - 1))
            for image in _part(images_of[k], kept, random, at_least=1):
                times[image] = task_of[k]
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

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """The images of a class are divided evenly among the tasks in which it occurs."""
        times: list[float] = [math.nan] * len(labels)
        for first, images in zip(task_of, _images_of(labels, len(task_of)), strict=True):
            later = range(first + 1, task_of[-1] + 1)
            back = [task for task in later if 100 * random.random() < self.repetition]
            random.shuffle(images)
            for image, task in zip(images, cycle([first, *back]), strict=False):
                times[image] = task
        return times


@register("random", "all classes mixed from the start, without tasks")
@dataclass(frozen=True)
class Random(StreamKind):
    """Independent and identically distributed images, for one epoch."""

    has_tasks = announced = False

    def arrivals(
        self, labels: Sequence[int], task_of: Sequence[int], random: Generator
    ) -> list[float]:
        """The same time for all."""
        return [0.0] * len(labels)


def _images_of(groups: Sequence[float], count: int) -> list[list[int]]:
    """Return the images of each group, a class or a task."""
    images: list[list[int]] = [[] for _ in range(count)]
    for image, group in enumerate(groups):
        images[int(group)].append(image)
    return images


def _share(count: int, percent: float) -> int:
    return round(count * percent / 100)


def _part(images: list[int], percent: float, random: Generator, at_least: int = 0) -> list[int]:
    """Return a random part of some images."""
    count = max(at_least, _share(len(images), percent))
    return random.sample(images, min(count, len(images)))


def _dealt(tasks: Sequence[int], random: Generator) -> Iterator[int]:
    """Yield the tasks in turn, from a random one on; nothing if there are none."""
    return cycle(random.sample(tasks, len(tasks)))


def _in_turn(task_of: Sequence[int], random: Generator) -> list[int]:
    """Return the classes in a random order that takes one of each task in turn."""
    classes = random.sample(range(len(task_of)), len(task_of))
    met = [0] * (task_of[-1] + 1)
    turn = {}
    for k in classes:
        turn[k] = met[task_of[k]]
        met[task_of[k]] += 1
    return sorted(classes, key=turn.__getitem__)
