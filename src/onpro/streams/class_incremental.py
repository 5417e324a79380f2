"""The benchmark stream: classes arrive in disjoint tasks, every image once."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import index
from typing import Any, Literal

import torch
from torch import Tensor

from onpro.data.imageset import ImageSet, Split
from onpro.errors import UserError
from onpro.randomness import derive_seed
from onpro.streams.batch import Batch
from onpro.streams.stream import State

ClassOrder = Literal["natural", "random"] | Sequence[int]
"""Classes as the data number them, in an order drawn from the seed, or in the order given."""


class ClassIncremental:
    """A data set as a sequence of tasks with disjoint classes, one epoch long (paper's protocol).

    Classes are renumbered in the order in which they arrive, so that the ids of a task are the next
    ones in a row; in natural order they stay as they are. Where the classes do not divide evenly,
    the first tasks have one class more. Images are shuffled inside their task; the last batch of a
    task may be smaller.

    The images lie on the device, and a batch is an index into them: streams over data that are
    there already share them. The order comes from the seed alone and is the same on every device;
    the order of classes and the order of images are drawn apart, so that one does not change with
    the other.

    Args:
        data: the images.
        tasks: number of tasks, 1 … number of classes.
        batch_size: images that arrive together; paper: 10.
        seed: of the order of images, and of classes where that is random.
        class_order: "natural" (paper), "random", or the classes' numbers in the order of arrival.
        device: where the images lie and batches come from.
    """

    def __init__(
        self,
        data: ImageSet,
        tasks: int,
        *,
        batch_size: int = 10,
        seed: int = 0,
        class_order: ClassOrder = "natural",
        device: torch.device | str = "cpu",
    ) -> None:
        count = len(data.classes)
        if not 1 <= tasks <= count:
            raise UserError(f"{count} classes make 1 to {count} tasks, not {tasks}.")
        if batch_size < 1:
            raise UserError(f"the batch size must be at least 1, not {batch_size}.")
        order = _class_order(class_order, count, seed)

        self.name = data.name
        self.num_classes = count
        self.num_tasks = tasks
        self.classes = tuple(data.classes[original] for original in order)
        """Names in order of arrival; a label of the stream is a position here."""
        self.task_classes = _shares(count, tasks)
        """Labels of each task."""
        self.mean, self.std = data.mean, data.std
        self.image_shape = data.image_shape
        self.batch_size, self.seed, self.class_order = batch_size, seed, order

        rank = torch.tensor(order).argsort()
        task_of = torch.tensor([t for t, ids in enumerate(self.task_classes) for _ in ids])
        train_labels, test_labels = rank[data.train.labels.cpu()], rank[data.test.labels.cpu()]

        per_task = _by_task(task_of[train_labels], tasks)
        for task, indices in enumerate(per_task):
            if not len(indices):
                raise UserError(
                    f"task {task + 1} of {tasks} would have no training image; take fewer tasks."
                )
        generator = _generator("images", seed)
        schedule = torch.cat(
            [ids[torch.randperm(len(ids), generator=generator)] for ids in per_task]
        )
        self._batches = _bounds([len(indices) for indices in per_task], batch_size)
        self.steps_per_task = tuple(-(-len(indices) // batch_size) for indices in per_task)
        self._host_labels: list[int] = train_labels[schedule].tolist()
        self._digest = hashlib.sha256(schedule.numpy().tobytes()).hexdigest()
        self._data = data
        self._position = 0

        device = torch.device(device)
        self._train = Split(data.train.images, train_labels).to(device)
        self._schedule = schedule.to(device)
        self._test = Split(data.test.images, test_labels).to(device)
        self._tested = [ids.to(device) for ids in _by_task(task_of[test_labels], tasks)]

    @property
    def position(self) -> int:
        """How many batches have been handed out."""
        return self._position

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[Batch]:
        while self._position < len(self):
            task, start, stop = self._batches[self._position]
            self._position += 1
            chosen = self._schedule[start:stop]
            yield Batch(
                images=self._train.images.index_select(0, chosen),
                labels=self._train.labels.index_select(0, chosen),
                task=task,
                classes=tuple(sorted(set(self._host_labels[start:stop]))),
            )

    def test(self, task: int) -> Split:
        """The test images of a task's classes, on the device, labelled as the stream labels."""
        if not 0 <= task < self.num_tasks:
            raise IndexError(f"there are tasks 0 to {self.num_tasks - 1}, not {task}")
        chosen = self._tested[task]
        return Split(self._test.images[chosen], self._test.labels[chosen])

    def state_dict(self) -> State:
        """The position, and what tells this schedule from others."""
        return {"position": self._position, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to a saved position; ValueError if the state is of another schedule."""
        other = [key for key, value in self._identity().items() if state.get(key) != value]
        if other:
            raise ValueError(f"the state is of another stream: {', '.join(other)} differ")
        position = state.get("position")
        if not isinstance(position, int) or not 0 <= position <= len(self):
            raise ValueError(f"the stream has positions 0 to {len(self)}, not {position}")
        self._position = position

    def _identity(self) -> State:
        return {
            "length": len(self),
            "tasks": self.num_tasks,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "class_order": list(self.class_order),
            "schedule": self._digest,
            "images": self._data.fingerprint,
        }


def _class_order(wish: ClassOrder, count: int, seed: int) -> tuple[int, ...]:
    """The data's class numbers in the order of arrival."""
    if isinstance(wish, str):
        if wish == "natural":
            return tuple(range(count))
        if wish == "random":
            return tuple(torch.randperm(count, generator=_generator("classes", seed)).tolist())
        order: tuple[int, ...] = ()
    else:
        try:
            order = tuple(int(index(number)) for number in wish)  # of NumPy and torch too
        except TypeError:
            order = ()
    if sorted(order) != list(range(count)):
        raise UserError(
            "the class order must be 'natural', 'random' or every number from 0 to"
            f" {count - 1} once."
        )
    return order


def _shares(classes: int, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Consecutive class ids for each task; the first (classes mod tasks) tasks get one more."""
    size, rest = divmod(classes, tasks)
    starts = [task * size + min(task, rest) for task in range(tasks + 1)]
    return tuple(tuple(range(a, b)) for a, b in pairwise(starts))


def _by_task(task_of_image: Tensor, tasks: int) -> tuple[Tensor, ...]:
    """Indices of each task's images, in the order of the data."""
    counts = torch.bincount(task_of_image, minlength=tasks).tolist()
    return torch.split(task_of_image.argsort(stable=True), counts)


def _bounds(images_per_task: Sequence[int], batch_size: int) -> list[tuple[int, int, int]]:
    """Task, start and stop of each batch in the schedule; no batch reaches over a task's end."""
    bounds = []
    first = 0
    for task, images in enumerate(images_per_task):
        last = first + images
        bounds += [
            (task, start, min(start + batch_size, last)) for start in range(first, last, batch_size)
        ]
        first = last
    return bounds


def _generator(purpose: str, seed: int) -> torch.Generator:
    """A generator of the host for one purpose; another purpose's draws never move it."""
    return torch.Generator().manual_seed(derive_seed(seed, f"stream/{purpose}"))
