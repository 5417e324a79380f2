"""iCaRL, incremental classifier and representation learning, online.

Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017; online, with
a random memory and random replay, as the OnPro paper runs it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from onpro.memory import retrieval
from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context
from onpro.methods.ncm import NearestMeanMethod
from onpro.methods.registry import register
from onpro.methods.replay import ReplaySettings
from onpro.methods.teacher import Teacher
from onpro.streams import Batch


@dataclass(frozen=True)
class ICaRLSettings(ReplaySettings):
    """Settings of iCaRL."""

    replay_batch: int = 64
    """Number of stored images of earlier tasks replayed with each batch (default from the
    paper)."""


@register(
    "icarl",
    ICaRLSettings,
    title="Incremental classifier and representation learning, online",
    paper="iCaRL: Incremental Classifier and Representation Learning",
    year=2017,
    memory="images, batch reservoir",
    inference="nearest class mean",
    images_per_step="10 in the first task, then 74, and 74 through the previous network",
)
class ICaRL(NearestMeanMethod[ICaRLSettings]):
    """Binary cross-entropy: new classes by their labels, old ones by the previous network."""

    def __init__(self, settings: ICaRLSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory(extra={"task": ((), torch.int64)})
        self.teacher = Teacher(self.network, context, training=True)
        self.in_use = torch.zeros(self.network.classes, dtype=torch.bool, device=context.device)
        """(classes,): the classes met so far, whose units take part in the loss."""

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on the batch and old images, then the memory's update."""
        self.in_use = self.in_use.index_fill(0, batch.labels, True)
        images = self.vary(self.prepare(batch.images))
        counted = torch.ones(len(images), dtype=torch.bool, device=images.device)
        targets = binary_targets(batch.labels, len(images), self.network.classes)
        if self.teacher.in_use:
            replay, eligible = self.old_images()
            counted = torch.cat([counted, eligible])
            images = repeated(torch.cat([images, self.vary(replay)]), counted)
            targets = binary_targets(
                batch.labels,
                len(images),
                self.network.classes,
                self.teacher.classify(images),
                self.teacher.known,
            )
            self.progress.images += len(images)
        logits = self.classify(images)
        loss = summed_binary_cross_entropy(logits, targets, units=self.in_use, rows=counted)
        self.descend(loss)
        task = torch.full_like(batch.labels, self.progress.task)
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"], task=task)
        return {"binary": loss}

    def old_images(self) -> tuple[Tensor, Tensor]:
        """Random images stored before the current task, as network input.

        The second answer says which of them count: there may be fewer than asked for, and then
        others follow them.
        """
        before = self.memory.fields["task"] < self.progress.task
        slots, eligible = retrieval.where(
            self.memory, before, self.settings.replay_batch, self.random["memory"]
        )
        return self.prepare(self.memory.take(slots).images), eligible

    def end_task(self) -> None:
        """The network becomes the previous one, which stays in train mode."""
        self.teacher.become(self.network, self.progress.seen)

    def grow(self, classes: int) -> None:
        """Widen the classifier and the list of units in use."""
        super().grow(classes)
        self.in_use = pad(self.in_use, (0, self.network.classes - len(self.in_use)))

    def forget(self, label: int) -> None:
        """Give a class up: its unit, and what the previous network knows of it."""
        super().forget(label)
        self.in_use[label] = False
        self.teacher.forget(label, self.outputs_of(label))


def binary_targets(
    labels: Tensor,
    rows: int,
    classes: int,
    previous: Tensor | None = None,
    known: Tensor | None = None,
) -> Tensor:
    """What each unit shall say of each image.

    Old classes shall look as the previous network saw them, on every row; of the new classes, a
    new image has its own, a replayed one none. A new image of an old class, which occurs where
    nobody separates tasks, keeps its label too.

    Args:
        labels: (n,) labels of the new images, which are the first rows.
        rows: number of images, new and replayed.
        classes: number of units.
        previous: (rows, k) logits of the previous network, k ≤ classes; None in the first task.
        known: (k,) which of its units stand for old classes.

    Returns:
        (rows, classes), each between 0 and 1.
    """
    dtype = torch.float32 if previous is None else previous.dtype
    targets = torch.zeros(rows, classes, dtype=dtype, device=labels.device)
    if previous is not None and known is not None:
        targets[:, : len(known)] = previous.sigmoid() * known
    targets[: len(labels)].scatter_(1, labels[:, None], 1.0)
    return targets


def summed_binary_cross_entropy(
    logits: Tensor, targets: Tensor, *, units: Tensor, rows: Tensor
) -> Tensor:
    """Binary cross-entropy, summed over the units in use, mean over the rows that count.

    Args:
        logits: (n, classes).
        targets: (n, classes).
        units: (classes,) bool, those in use.
        rows: (n,) bool, those that count.
    """
    each = binary_cross_entropy_with_logits(logits, targets.to(logits.dtype), reduction="none")
    counted = rows[:, None] & units
    return each.masked_fill(~counted, 0.0).sum() / rows.sum()


def repeated(images: Tensor, counted: Tensor) -> Tensor:
    """The images that count, from the first on again in place of those that do not.

    So a batch keeps its size, which the device need not be asked for, and batch norm hardly notices
    what was left out: it sees the images that count, some of them once more.

    Args:
        images: (n, 3, height, width).
        counted: (n,) bool, true for the first ones.
    """
    rows = torch.arange(len(images), device=images.device) % counted.sum()
    return images.index_select(0, rows)
