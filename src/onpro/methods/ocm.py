"""OCM, online continual learning through mutual information maximization.

Guo et al., ICML 2022. A contrast between rotated images, within the network and against the network
before the current task, preserves what the images have in common; the classifier is trained on
replayed images.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch.nn.functional import cross_entropy

from onpro import losses
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.parts.contrast import ContrastSettings, RotationContrast
from onpro.methods.registry import register
from onpro.nn.teacher import Teacher
from onpro.recipes import IMAGENET, MANY_CLASSES, PAPER, SHORT_STREAMS, Recipe, on
from onpro.streams import Batch


@dataclass(frozen=True)
class OCMSettings(ContrastSettings):
    """Settings of OCM."""


@register(
    "ocm",
    OCMSettings,
    title="Mutual information maximization",
    paper="Online Continual Learning through Mutual Information Maximization",
    year=2022,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="330 in the first task, then up to 2432, and 1088 of the previous network",
    data={
        "cifar10": {"similarity_scale": 0.5},
        **on(MANY_CLASSES, similarity_scale=1.0),
        **on(IMAGENET, similarity_scale=1.0, rotations=1),
        **on(SHORT_STREAMS, projection=64, learning_rate=5e-3),
        "tiny": {"projection": 64, "learning_rate": 5e-3, "rotations": 4},
    },
    recipes={
        "paper": PAPER,
        "without-rotation": Recipe("no rotated copies", {"rotations": 1}),
    },
)
class OCM(Method[OCMSettings]):
    """First task: L = CE(X) + L_n; later: L = CE(Xb) + L_n + L_u + L_prev + L_mse."""

    remembers = True
    learns_new_by_replay_only = True
    takes_added_terms = True
    replays_later = True

    def __init__(self, settings: OCMSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network(projection=settings.projection)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.contrast = RotationContrast(settings, context, self.network, self.random)
        # In train mode, as in the official code: it normalises by the batch it is shown.
        self.previous = Teacher(self.network, training=True)

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and, after the first task, on replay; then the memory."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        first, classes = self.progress.task == 0, len(self.progress.seen)
        old = self.sample_replay(0 if first else self.settings.replay_size(classes))
        terms = self.descend(lambda: self.terms(new, old) | self.added_terms(new, old))
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """Whether it is the first task; else the size of the replay batch."""
        if self.progress.task == 0:
            return None
        return self.settings.replay_size(len(self.progress.seen))

    def terms(self, new: Labelled, old: Labelled) -> Terms:
        """The terms of the loss on new and replayed images."""
        if self.progress.task == 0:
            return self.first_task_terms(new)
        return self.later_task_terms(new, old)

    def first_task_terms(self, new: Labelled) -> Terms:
        """Contrast and cross-entropy of the new images."""
        rotated = self.contrast.rotate(new.images)
        views = torch.cat([rotated, self.augment(rotated)])
        of_views, features = self.network.features_each(views, self.augment(new.images))
        return {
            "ins_new": self.contrast.loss(
                losses.new_instance_loss, of_views, new.labels, first_task=True
            ),
            "ce": cross_entropy(self.network.classify(features), new.labels),
        }

    def later_task_terms(self, new: Labelled, old: Labelled) -> Terms:
        """Contrast of both; cross-entropy and the previous network on replay only."""
        contrast, network = self.contrast, self.network
        rotated, rotated_old = contrast.rotate(new.images), contrast.rotate(old.images)
        views = [rotated, self.augment(rotated), rotated_old, self.augment(rotated_old)]
        of_views, features = network.features_each(torch.cat(views), self.augment(old.images))
        of_new, of_old = of_views.split([2 * len(rotated), 2 * len(rotated_old)])
        logits = network.classify(features)

        # L_prev compares the raw rotated replay with the previous network's view of it.
        ins_new = contrast.loss(losses.new_instance_loss, of_new, new.labels, first_task=False)
        ins_old = contrast.loss(losses.replay_instance_loss, of_old, old.labels, first_task=False)
        z = network.embed(of_old[: len(rotated_old)])
        previous = losses.previous_instance_loss(
            z @ self.previous.embed(rotated_old).T,
            contrast.labels(old.labels),
            self.settings.instance_temperature,
        )
        # The previous network sees another augmentation, as in the official code.
        before = network.upright(self.previous.logits(self.augment(old.images)))
        return {
            "ins_new": ins_new,
            "ins_replay": ins_old,
            "previous": previous,
            "ce": cross_entropy(logits, old.labels),
            "mse": losses.known_logits_error(logits, before, self.previous.known),
        }

    def end_task(self) -> None:
        """The network becomes the previous one."""
        self.previous.become(self.network, self.progress.seen)

    def forget(self, label: int) -> None:
        """Drop a class, also from the previous network."""
        super().forget(label)
        self.previous.forget(label, self.network.outputs_of(label))
