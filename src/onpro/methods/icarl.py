"""iCaRL, incremental classifier and representation learning, online.

Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR 2017; online, with
a random memory and random replay, as the OnPro paper runs it.
"""

from dataclasses import dataclass

import torch
from torch.nn.functional import pad

from onpro import losses
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.ncm import NearestMean, PredictsNearestMean
from onpro.methods.parts.sets import joined, sample_where
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.nn.teacher import Teacher
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER
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
    data=IMAGENET,
    recipes={"paper": PAPER, "original": FRAMEWORK.varied("the online framework's defaults")},
)
class ICaRL(PredictsNearestMean[ICaRLSettings]):
    """Binary cross-entropy: new classes by their labels, old ones by the previous network."""

    remembers = True

    def __init__(self, settings: ICaRLSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory(task=((), torch.int64))
        self.teacher = Teacher(self.network, training=True)
        self.in_use = torch.zeros(self.network.classes, dtype=torch.bool, device=context.device)
        """(classes,): the classes met so far, whose units take part in the loss."""
        self.nearest_mean = NearestMean()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and images of earlier tasks, then the memory update."""
        self.in_use = self.in_use.index_fill(0, batch.labels, True)
        shown = Labelled(self.augment(self.normalise(batch.images)), batch.labels)
        previous = known = None
        if self.teacher.in_use:
            earlier = self.memory.fields["task"] < self.progress.task
            old = sample_where(self, earlier, self.settings.replay_batch)
            shown = joined(shown, old._replace(images=self.augment(old.images)))
            previous, known = self.teacher.logits(shown.images), self.teacher.known
        logits = self.network.logits(shown.images)
        targets = losses.binary_targets(
            batch.labels, len(logits), self.network.classes, previous, known
        )
        counted = shown.labels != losses.NO_CLASS
        loss = losses.summed_binary_cross_entropy(logits, targets, units=self.in_use, rows=counted)
        terms = {"binary": loss}
        self.minimise(terms)
        task = torch.full_like(batch.labels, self.progress.task)
        self.remember(batch, task=task)
        return terms

    def end_task(self) -> None:
        """The network becomes the previous one, which stays in train mode."""
        self.teacher.become(self.network, self.progress.seen)

    def grow(self, classes: int) -> None:
        """Widen the classifier and the list of units in use."""
        super().grow(classes)
        self.in_use = pad(self.in_use, (0, self.network.classes - len(self.in_use)))

    def forget(self, label: int) -> None:
        """Drop a class: its unit, and what the previous network knows of it."""
        super().forget(label)
        self.in_use[label] = False
        self.teacher.forget(label, self.network.outputs_of(label))
