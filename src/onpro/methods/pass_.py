"""PASS, prototype augmentation and self-supervision: nothing is kept but a mean for each class.

Zhu et al., "Prototype Augmentation and Self-Supervision for Incremental Learning", CVPR 2021.
"""

import logging
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro import losses
from onpro.augment import check_rotation, interleaved_labels, interleaved_rotations
from onpro.memory.task_images import TaskImages
from onpro.methods.base import EVAL_BATCH, Context, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import MIN_TEMPERATURE, Settings
from onpro.nn.optimizers import Adam
from onpro.nn.teacher import Teacher
from onpro.recipes import PAPER, Recipe
from onpro.streams import Batch

ROTATIONS = 4


@dataclass(frozen=True)
class PASSSettings(Settings):
    """Settings of PASS."""

    learning_rate: float = 1e-3
    """Learning rate of Adam, which starts anew with every task (default from the paper)."""

    weight_decay: float = 2e-4
    """Weight decay of Adam, added to the gradient (default from the paper)."""

    temperature: float = 0.1
    """What logits are divided by in the cross-entropy (default from the paper)."""

    prototype_weight: float = 10.0
    """Weight of the cross-entropy of augmented prototypes (default from the paper)."""

    distillation_weight: float = 10.0
    """Weight of the distance between the features of the network and of the one before the task,
    a norm over the whole batch (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_above(0, "learning_rate")
        self.require_at_least(0, "weight_decay", "prototype_weight", "distillation_weight")
        self.require_at_least(MIN_TEMPERATURE, "temperature")


@register(
    "pass",
    PASSSettings,
    title="Prototype augmentation and self-supervision",
    paper="Prototype Augmentation and Self-Supervision for Incremental Learning",
    year=2021,
    memory="no images; a mean feature for each class",
    inference="linear head",
    images_per_step="40 in the first task, then 80, and 40 of the previous network",
    recipes={
        "paper": PAPER,
        "original": Recipe(
            "its own code's augmentation, without its jitter, in one pass",
            {"augmentation": "crop"},
        ),
    },
)
class PASS(Method[PASSSettings]):
    """L = CE of four rotations, and later: distance of features, CE of augmented prototypes.

    Its memory stays empty. The images of the current task are kept until the task ends, for a
    second pass over them.
    """

    keeps_images = False
    has_plain_memory = False

    def __init__(self, settings: PASSSettings, context: Context) -> None:
        super().__init__(settings, context)
        check_rotation(context.image_shape, ROTATIONS)
        # The head grows as classes appear, even where their number is announced.
        self.network = self.make_network(classes=0, outputs_per_class=ROTATIONS)
        self.optimizer = self.new_optimizer()
        self.previous = Teacher(self.network)
        self.task_images = TaskImages(context.image_shape, context.device)
        width: int = self.network.encoder.out_features
        device = context.device
        self.prototypes = torch.zeros(0, width, device=device)
        """(classes, features): the mean feature of each class of earlier tasks."""
        self.has_prototype = torch.zeros(0, dtype=torch.bool, device=device)
        """(classes,)"""
        self.radius = torch.zeros((), device=device)
        """How far images of a class spread around its mean, measured once, in the first task."""

    def new_optimizer(self) -> Adam:
        """A fresh Adam."""
        settings = self.settings
        return Adam(
            settings.parameter_groups(self.network.parameters()),
            settings.learning_rate,
            weight_decay=settings.weight_decay,
            fused=True,
        )

    def start_task(self) -> None:
        """A new Adam for every task; the head has grown by now."""
        if not self.progress.steps:
            logging.getLogger(__name__).warning(
                "pass keeps no past images: the memory of %d is not used.", self.context.memory
            )
        self.optimizer = self.new_optimizer()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the four rotations of the batch."""
        settings = self.settings
        images = interleaved_rotations(self.augment(self.normalise(batch.images)))
        labels = interleaved_labels(batch.labels)
        if self.progress.task == 0:
            terms = {"ce": self.tempered_cross_entropy(self.network.features(images), labels)}
        else:
            # Distillation takes a forward pass of its own: running statistics move twice.
            features, again = self.network.features_each(images, images)
            drift = losses.feature_distance(again, self.previous.features(images))
            prototypes, of_prototypes = self.augmented_prototypes(len(batch))
            recalled = self.tempered_cross_entropy(prototypes, of_prototypes)
            terms = {
                "ce": self.tempered_cross_entropy(features, labels),
                "distillation": settings.distillation_weight * drift,
                "prototypes": settings.prototype_weight * recalled,
            }
        self.minimise(terms)
        return terms

    def after_step(self, batch: Batch) -> None:
        """Keep the images for the end of the task."""
        self.task_images.add(batch.images, batch.labels)

    def tempered_cross_entropy(self, features: Tensor, labels: Tensor) -> Tensor:
        """CE of features, their logits divided by the temperature."""
        logits: Tensor = self.network.classifier(features)
        return cross_entropy(logits / self.settings.temperature, labels)

    def augmented_prototypes(self, count: int) -> tuple[Tensor, Tensor]:
        """p_k + r·ε for so many random old classes k, and the outputs 4k they belong to."""
        generator, device = self.random["prototypes"], self.context.device
        old_first = (~self.has_prototype).to(torch.uint8).argsort(stable=True)
        share = torch.rand(count, dtype=torch.float64, generator=generator, device=device)
        labels = old_first[(share * self.has_prototype.sum()).long()]
        noise = torch.randn(count, self.prototypes.shape[1], generator=generator, device=device)
        return self.prototypes[labels] + self.radius * noise, ROTATIONS * labels

    def end_task(self) -> None:
        """A second pass over the task's images: their mean features, and how far they spread."""
        images, labels = self.task_images.whole_batches()
        features = torch.cat(
            [
                self.eval_features(self.augment(self.normalise(some)))
                for some in images.split(EVAL_BATCH)
            ]
        )
        means, counts = losses.class_means(features, labels, self.network.classes)
        if self.progress.task == 0:
            self.radius = losses.spread(features, labels, means, counts)
        self.prototypes = torch.where(counts[:, None] > 0, means, self.prototypes)
        self.has_prototype = self.has_prototype | (counts > 0)
        self.previous.become(self.network, self.progress.seen)
        self.task_images.clear()

    def grow(self, classes: int) -> None:
        """Widen the head and the table of prototypes."""
        super().grow(classes)
        missing = self.network.classes - len(self.prototypes)
        new = self.prototypes.new_zeros(missing, self.prototypes.shape[1])
        self.prototypes = torch.cat([self.prototypes, new])
        self.has_prototype = torch.cat([self.has_prototype, self.has_prototype.new_zeros(missing)])

    def forget(self, label: int) -> None:
        """Drop a class: its prototype, its outputs, its images in the current task."""
        self.prototypes[label] = 0
        self.has_prototype[label] = False
        self.task_images.remove(label)
        self.previous.forget(label, self.network.outputs_of(label))
        super().forget(label)

    @property
    def has_past(self) -> bool:
        """Whether there is a prototype, which later tasks rely on; waits for the device."""
        return bool(self.has_prototype.any())
