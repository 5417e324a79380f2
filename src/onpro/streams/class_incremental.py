"""Play a data set as a stream in which classes arrive over time, each image at most once."""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from operator import index
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split
from onpro.errors import UserError, counted
from onpro.randomness import derive_seed
from onpro.streams.cues import Cues, by_group, choose_share, other_labels
from onpro.streams.kinds import Disjoint
from onpro.streams.registry import StreamKind
from onpro.streams.shortcut import ShortcutSettings
from onpro.streams.stream import Batch, State

ClassOrder = Literal["natural", "random"] | Sequence[int]
"""Classes in the order of the data set, in a random order, or in the given order."""


class ClassIncremental:
    """A data set as a stream of one epoch; by default the paper's, tasks with disjoint classes.

    Classes are relabelled in the order of arrival, so that the labels of a task are consecutive; in
    natural order they do not change. If the classes do not divide evenly, the first tasks have one
    class more. The kind of stream says when the images of each class arrive; images with the same
    time are shuffled. A batch has images of one task only, so the last of a task may be smaller. A
    kind without tasks is divided into `tasks` parts with equally many batches, for evaluation.

    The images are moved to the device, where streams over the same data share them, and a batch is
    selected by index. The order depends on the seed alone and is the same on every device. The
    orders of classes and of images are drawn independently.

    Args:
        data: the data set.
        tasks: number of tasks, from 1 to the number of classes.
        kind: which images arrive when; paper: `Disjoint()`.
        batch_size: images per batch; paper: 10.
        seed: seed of the order of images, and of a random order of classes.
        class_order: "natural" (paper), "random", or the class indices in order of arrival.
        hide_boundaries: whether batches do not say which task they belong to.
        evaluations: number of evaluations at equal distances, beside those after each task.
        shortcut: cues to paint into training images; each class must arrive in its task only.
        device: device of the images and batches.
    """

    def __init__(
        self,
        data: ImageSet,
        tasks: int,
        *,
        kind: StreamKind | None = None,
        batch_size: int = 10,
        seed: int = 0,
        class_order: ClassOrder = "natural",
        hide_boundaries: bool = False,
        evaluations: int = 0,
        shortcut: ShortcutSettings | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        count = len(data.classes)
        kind = Disjoint() if kind is None else kind
        require_possible(kind, tasks, count, batch_size=batch_size, cued=shortcut is not None)
        order = _class_order(class_order, count, seed)

        self.kind = kind
        self.name = data.name
        self.num_classes = count
        self.num_tasks = tasks
        self.classes = tuple(data.classes[original] for original in order)
        """Class names in order of arrival; a label of the stream is an index into this tuple."""
        self.task_classes = _split_classes(count, tasks)
        """Labels of each task."""
        self.mean, self.std = data.mean, data.std
        self.image_shape = data.image_shape
        self.batch_size, self.seed, self.class_order = batch_size, seed, order
        self.announces_tasks = kind.announced and not hide_boundaries

        rank = torch.tensor(order).argsort()
        task_of = torch.tensor([t for t, ids in enumerate(self.task_classes) for _ in ids])
        train_labels, test_labels = rank[data.train.labels.cpu()], rank[data.test.labels.cpu()]

        random = Random(derive_seed(seed, f"stream/{kind.name}"))
        arrivals = kind.arrivals(train_labels.tolist(), task_of.tolist(), random)
        times = _times(kind, arrivals, len(train_labels), tasks)
        schedule = _arrival_order(times, _generator("images", seed))
        self.num_images = len(schedule)
        if kind.has_tasks:
            sizes = torch.bincount(times[schedule].long(), minlength=tasks).tolist()
            for task, size in enumerate(sizes):
                if not size:
                    raise UserError(
                        f"task {task + 1} of {tasks} has no training images; use fewer tasks."
                    )
            self.steps_per_task = tuple(-(-size // batch_size) for size in sizes)
            self._batches = _batch_bounds(sizes, batch_size)
        else:
            self._batches = _batch_bounds([len(schedule)], batch_size)
            ends = _fractions(len(self._batches), tasks, "tasks")
            self.steps_per_task = tuple(b - a for a, b in pairwise([0, *ends]))
        self._task_ends = list(accumulate(self.steps_per_task))
        more = _fractions(len(self._batches), evaluations, "evaluations")
        self.evaluation_steps = tuple(sorted({*self._task_ends, *more}))
        """Numbers of batches after which to evaluate, those at the end of a task among them."""
        self._host_labels: list[int] = train_labels[schedule].tolist()
        self._digest = hashlib.sha256(schedule.numpy().tobytes()).hexdigest()
        self._data = data
        self._position = 0

        device = torch.device(device)
        self._train = data.train.relabelled(rank).to(device)
        self._schedule = schedule.to(device)
        self._test = data.test.relabelled(rank).to(device)
        test_indices = by_group(task_of[test_labels], tasks)
        self._test_indices = [ids.to(device) for ids in test_indices]

        self.shortcut = shortcut
        self.cues: Cues | None = None
        """Paints the cues of the shortcut; None without one."""
        if shortcut:
            random_cues = _generator("shortcut", seed)
            quadrant = int(torch.randint(4, (), generator=random_cues))
            cues = Cues.of(shortcut, self.task_classes, self.image_shape, quadrant)
            self.cues = cues.to(device)
            arriving = schedule.sort().values
            cued = torch.zeros(len(train_labels), dtype=torch.bool)
            cued[arriving] = choose_share(
                train_labels[arriving], count, shortcut.share, random_cues
            )
            self._cued = cued.to(device)
            others = other_labels(test_labels, self.task_classes)
            self._others = [others[ids].to(device) for ids in test_indices]

    @property
    def position(self) -> int:
        """Number of batches yielded so far."""
        return self._position

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        remaining = self._batches[self._position :]
        indices = (self._schedule[start:stop] for start, stop in remaining)
        for (start, stop), arrived in zip(remaining, self._train.batches(indices), strict=True):
            self._position += 1
            images = arrived.images
            if self.cues:
                chosen = self._cued[self._schedule[start:stop]]
                images = self.cues.paint(images, arrived.labels, chosen)
            classes = tuple(sorted(set(self._host_labels[start:stop])))
            task = bisect_left(self._task_ends, self._position) if self.announces_tasks else None
            yield Batch(images, arrived.labels, task, classes)

    def images_after(self, steps: int) -> int:
        """Return the number of images in the first batches of the stream."""
        return self._batches[steps - 1][1] if steps else 0

    def labels_in_order(self) -> list[int]:
        """Return the label of each image in the order of arrival."""
        return list(self._host_labels)

    def test(self, task: int) -> Split:
        """Return the test images of a task, on the device, with the labels of the stream."""
        if not 0 <= task < self.num_tasks:
            raise IndexError(f"the stream has tasks 0 to {self.num_tasks - 1}, not {task}")
        return self._test.select(self._test_indices[task])

    def other_labels(self, task: int) -> Tensor:
        """Return the class whose cue is the wrong one of each test image of a task, (n,).

        Only streams with a shortcut have them.
        """
        return self._others[task]

    def state_dict(self) -> State:
        """Return the position and what identifies the stream."""
        return {"position": self._position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved position; raise ValueError if the state is of another stream."""
        differing = [key for key, value in self._identity().items() if state.get(key) != value]
        if differing:
            raise ValueError(f"the state is of another stream: {', '.join(differing)} differ")
        position = state.get("position")
        if not isinstance(position, int) or not 0 <= position <= len(self):
            raise ValueError(f"the stream has positions 0 to {len(self)}, not {position}")
        self._position = position

    def _identity(self) -> State:
        return {
            "length": len(self),
            "kind": str(self.kind),
            "tasks": self.num_tasks,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "class_order": list(self.class_order),
            "schedule": self._digest,
            "images": self._data.fingerprint,
            "shortcut": str(self.shortcut) if self.shortcut else None,
        }


def require_possible(
    kind: StreamKind, tasks: int | None, classes: int | None, *, batch_size: int, cued: bool
) -> None:
    """Raise UserError for what cannot be a stream, whatever the images.

    Args:
        kind: which images arrive when.
        tasks: number of tasks; None if it is not known yet.
        classes: number of classes; None if it is not known yet.
        batch_size: images per batch.
        cued: whether there is a shortcut, whose cues tell the classes of a task apart.
    """
    if batch_size < 1:
        raise UserError(f"the batch size must be at least 1, not {batch_size}.")
    if cued and not kind.separates_classes:
        raise UserError(
            "a shortcut needs a stream in which each class arrives in one task, such as disjoint "
            f"or long-tail, not {kind.name}."
        )
    if tasks is not None and classes is None and tasks < 1:
        raise UserError(f"the number of tasks must be at least 1, not {tasks}.")
    if tasks is None or classes is None:
        return
    if not 1 <= tasks <= classes:
        raise UserError(f"{classes} classes make 1 to {classes} tasks, not {tasks}.")
    sizes = [len(labels) for labels in _split_classes(classes, tasks)]
    if cued and 1 in sizes:
        raise UserError(
            f"a shortcut tells the classes of a task apart, but task {sizes.index(1) + 1} of "
            f"{tasks} has one class only: use fewer tasks."
        )


def _times(kind: StreamKind, arrivals: Sequence[float], count: int, tasks: int) -> Tensor:
    """Return the times of arrival as a tensor; raise UserError if they cannot be ones."""
    said = f"arrivals of the stream {kind.name} must return a number for each of {count} images"
    try:
        times = torch.as_tensor(arrivals, dtype=torch.float64)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"{said}: {error}.") from error
    if times.shape != (count,):
        raise UserError(f"{said}, not {counted(times.numel(), 'number')}.")
    known = times[~times.isnan()]
    if kind.has_tasks and len(known) and not (known.min() >= 0 and known.max() < tasks):
        wrong = known.min() if known.min() < 0 else known.max()
        raise UserError(
            f"the stream {kind.name} has an image at the time {wrong:g}: {tasks} tasks take the "
            f"times from 0 to below {tasks}."
        )
    if known.isinf().any():
        raise UserError(f"{said}, or NaN for one that never arrives, not infinity.")
    return times


def _class_order(order: ClassOrder, count: int, seed: int) -> tuple[int, ...]:
    """Return the class indices of the data set in order of arrival."""
    if isinstance(order, str):
        if order == "natural":
            return tuple(range(count))
        if order == "random":
            return tuple(torch.randperm(count, generator=_generator("classes", seed)).tolist())
        indices: tuple[int, ...] = ()
    else:
        try:
            indices = tuple(int(index(number)) for number in order)  # of NumPy and torch too
        except TypeError:
            indices = ()
    if sorted(indices) != list(range(count)):
        raise UserError(
            "the class order must be 'natural', 'random' or every number from 0 to"
            f" {count - 1} once."
        )
    return indices


def _split_classes(classes: int, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Return consecutive labels for each task; the first `classes % tasks` tasks get one more."""
    size, remainder = divmod(classes, tasks)
    starts = [task * size + min(task, remainder) for task in range(tasks + 1)]
    return tuple(tuple(range(a, b)) for a, b in pairwise(starts))


def _arrival_order(times: Tensor, generator: torch.Generator) -> Tensor:
    """Return the indices of images in order of arrival, without those whose time is NaN."""
    arriving = (~times.isnan()).nonzero()[:, 0]
    if not len(arriving):
        return arriving
    # Those of equal whole times are shuffled together, one group after the other, as tasks are.
    whole, group = times[arriving].floor().unique(return_inverse=True)
    parts = by_group(group, len(whole))
    shuffled = torch.cat(
        [arriving[ids[torch.randperm(len(ids), generator=generator)]] for ids in parts]
    )
    return shuffled[times[shuffled].argsort(stable=True)]


def _batch_bounds(images_per_task: Sequence[int], batch_size: int) -> list[tuple[int, int]]:
    """Return start and stop of each batch in the schedule; no batch spans two tasks."""
    return [
        (start, min(start + batch_size, last))
        for first, last in pairwise(accumulate(images_per_task, initial=0))
        for start in range(first, last, batch_size)
    ]


def _fractions(steps: int, count: int, what: str) -> list[int]:
    """Return so many step numbers at equal distances, the last step among them."""
    if count < 0:
        raise UserError(f"the number of {what} must be at least 0, not {count}.")
    if count > steps:
        raise UserError(
            f"{count} {what} are too many for a stream of {counted(steps, 'step')}: take fewer, or "
            "smaller batches."
        )
    return [(k + 1) * steps // count for k in range(count)]


def _generator(purpose: str, seed: int) -> torch.Generator:
    """Return a CPU generator for one purpose, independent of those for other purposes."""
    return torch.Generator().manual_seed(derive_seed(seed, f"stream/{purpose}"))
