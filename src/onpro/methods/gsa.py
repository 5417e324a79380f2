"""GSA, gradient self-adaptation: weight classes by the gradients that pull and push them.

Guo, Liu and Zhao, "Dealing with Cross-Task Class Discrimination in Online Continual Learning",
CVPR 2023.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from onpro.losses import NO_CLASS, masked_cross_entropy
from onpro.losses.precision import MASKED_LOGIT
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.known import KnownClasses, MeetsClasses, TaskSteps, outputs_of
from onpro.methods.parts.sets import first_of, joined, sample_of
from onpro.methods.registry import register
from onpro.methods.settings import AdamSettings
from onpro.nn.optimizers import Adam, AdamW
from onpro.recipes import GSA_PORT, GSA_PORT_OF_MKD, IMAGENET, SHORT_STREAMS, Recipe, on
from onpro.streams import Batch


@dataclass(frozen=True)
class GSASettings(AdamSettings):
    """Settings of GSA."""

    augmentation: str = "gsa"
    """How training images are augmented: none, ocm, crop, scr, dvc, gsa, mose, or several joined by
    + (default from the official code: gray, resized crop; for mirrored copies see views)."""

    optimizer: Literal["adam", "adamw"] = "adam"
    """What takes the steps: adam (default from the official code) or adamw (CCL-DC's port)."""

    learning_rate: float = 1e-3
    """Learning rate of Adam (default from the official code)."""

    weight_decay: float = 1e-4
    """Weight decay, added to the gradient (adamw: to the step) (default from the official code)."""

    replay_batch: int = 64
    """Size of the mixed set of replayed and new images (default from the official code)."""

    new_replay: int = 22
    """Number of stored images of the current task that join the new batch (default from the
    official code)."""

    mix_weight: float = 2.0
    """Weight of the loss of the mixed set (default from the official code)."""

    warm_up: int = 5
    """Number of batches at the start of a task in which classes have equal weights (default from
    the official code)."""

    views: Literal["independent", "mirrored", "single"] = "independent"
    """How images are shown: each and its mirrored copy, augmented independently, those of the new
    set twice (default from the official code); augmented once, then mirrored (CCL-DC's port); or
    without a mirrored copy (MKD's port)."""

    head: Literal["trained", "frozen"] = "trained"
    """The classifier: trained throughout (default from CCL-DC's and MKD's ports), or frozen after
    the first task, so that classes of later tasks keep random weights (what the official code
    does)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "new_replay", "mix_weight", "warm_up")

    @property
    def adam(self) -> type[Adam | AdamW]:
        """The kind of Adam."""
        return AdamW if self.optimizer == "adamw" else Adam


@register(
    "gsa",
    GSASettings,
    title="Gradient self-adaptation",
    paper="Dealing with Cross-Task Class Discrimination in Online Continual Learning",
    year=2023,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="up to 192",
    data={
        **IMAGENET,
        **on(SHORT_STREAMS, learning_rate=5e-3),
        "tiny": {"learning_rate": 5e-3, "replay_batch": 16, "new_replay": 6},
    },
    recipes={
        "original": Recipe(
            "its own code's numbers: the classifier is frozen after the first task",
            {"head": "frozen"},
        ),
        "port": Recipe(
            "CCL-DC's port: AdamW with a smaller learning rate, one augmentation for both copies",
            GSA_PORT,
        ),
        "port-mkd": Recipe(
            "MKD's port: a smaller learning rate, no weight decay; crop, flip, no mirrored copies",
            GSA_PORT_OF_MKD,
        ),
    },
)
class GSA(MeetsClasses[GSASettings]):
    """L = CE(new set; classes of the task) + 2·CE(mixed set; classes seen, weighted)."""

    remembers = True
    takes_added_terms = True

    def __init__(self, settings: GSASettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.known = KnownClasses(self.network.classes, context.device)
        outputs: int = self.network.classifier.out_features
        self.sums = torch.zeros(3, outputs, dtype=torch.float64, device=context.device)
        """Of each output, over the whole stream: number of images of its class, their
        probabilities of it, and those of all other images."""
        self.task_steps = TaskSteps(context.device)

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the new and the mixed set, then the memory update."""
        self.known.meet(batch.labels)
        batch_set = Labelled(self.normalise(batch.images), batch.labels)
        new = self.new_set(batch_set)
        mixed = self.mixed_set(new)
        terms = self.descend(lambda: self.terms(new, mixed) | self.added_terms(batch_set))
        self.task_steps.advance()
        self.remember(batch)
        return terms

    def new_set(self, new: Labelled) -> Labelled:
        """The batch, and stored images of the classes of the current task."""
        return joined(new, sample_of(self, self.known.current, self.settings.new_replay))

    def mixed_set(self, new: Labelled) -> Labelled:
        """Images of earlier tasks and of the new set, as many as their classes among those seen.

        It is empty as long as nothing is stored.
        """
        if self.memory.is_empty:
            return first_of(new, 0)
        progress, size = self.progress, self.settings.replay_batch
        seen, before = len(progress.seen), len(progress.seen_before_task)
        earlier = sample_of(self, self.known.old, size * before // seen)
        return joined(earlier, first_of(new, size * (seen - before) // seen))

    def terms(self, new: Labelled, mixed: Labelled) -> Terms:
        """L_new and L_mix, each in a forward pass of its own."""
        per_class = self.network.outputs_per_class
        copies = 1 if self.settings.views == "single" else 2
        views = [self.views_of(new.images, twice=True)]
        if len(mixed.labels):
            views.append(self.views_of(mixed.images))
        of_new, *of_mixed = self.network.logits_each(*views)
        current = outputs_of(self.known.current, per_class, new.labels)
        terms = {"new": masked_cross_entropy(of_new, new.labels.repeat(copies), current)}
        if of_mixed:
            labels, seen = mixed.labels.repeat(copies), outputs_of(self.known.seen, per_class)
            weight = self.class_weights(of_mixed[0].detach(), labels, seen)
            loss = masked_cross_entropy(of_mixed[0], labels, seen, weight)
            terms["mixed"] = self.settings.mix_weight * loss
        return terms

    def views_of(self, images: Tensor, *, twice: bool = False) -> Tensor:
        """Images, augmented, then their mirrored copies if there are any, (n or 2n, 3, h, w).

        `twice` augments independent views once more.
        """
        if self.settings.views == "single":
            return self.augment(images)
        if self.settings.views == "mirrored":
            images = self.augment(images)
            return torch.cat([images, images.flip(3)])
        views = self.augment(torch.cat([images, images.flip(3)]))
        return self.augment(views) if twice else views

    def class_weights(self, logits: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
        """Add the mixed set to the sums, and return the weights (outputs,) of the classes.

        w = 2/(1 + exp(1 − r)), r = (count − positive)/negative: the ratio of the gradients that
        pull a class to those that push it, which is 1 for a balanced class.
        """
        self.sums = self.sums + probability_sums(logits, labels, seen)
        count, positive, negative = self.sums
        ratio = torch.where(negative > 0, (count - positive) / negative, 1.0)
        weight = 2 * (ratio - 1).sigmoid()
        return torch.where(self.task_steps.count < self.settings.warm_up, 1.0, weight)

    def start_task(self) -> None:
        """Classes met so far become old, and the warm-up starts again."""
        super().start_task()
        self.task_steps.start_task()
        if self.settings.head == "frozen" and self.progress.task == 1:
            self.renew_unseen()
        self.set_training_of_head()

    def renew_unseen(self) -> None:
        """Reinitialise the outputs of classes that have not been met before the current task.

        So far only weight decay has moved them; it takes them close to 0 within about 50 steps.
        """
        for label in set(range(self.network.classes)) - self.progress.seen_before_task:
            for output in self.network.outputs_of(label):
                self.network.classifier.renew(
                    output, generator=self.random["growth"], optimizer=self.optimizer
                )

    def set_training_of_head(self) -> None:
        """Freeze the classifier, or let it be trained."""
        frozen = self.settings.head == "frozen" and self.progress.task > 0
        self.network.classifier.requires_grad_(not frozen)

    def grow(self, classes: int) -> None:
        """Widen the classifier and what is kept of each class."""
        super().grow(classes)
        self.sums = pad(self.sums, (0, self.network.classifier.out_features - self.sums.shape[1]))

    def forget(self, label: int) -> None:
        """Drop a class, also from the sums."""
        super().forget(label)
        self.sums[:, list(self.network.outputs_of(label))] = 0

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        super().load_state_dict(state)
        self.set_training_of_head()


def probability_sums(logits: Tensor, labels: Tensor, seen: Tensor) -> Tensor:
    """Sums over images: number of images of each output, Σ p of these, Σ p of all others.

    Args:
        logits: (n, outputs).
        labels: (n,) outputs; rows labelled `NO_CLASS` do not count.
        seen: (outputs,) bool, the outputs that p is a softmax over.

    Returns:
        (3, outputs) float64
    """
    counted = (labels != NO_CLASS)[:, None].double()
    probability = logits.masked_fill(~seen, MASKED_LOGIT).double().softmax(dim=1) * counted
    own = (labels[:, None] == torch.arange(logits.shape[1], device=labels.device)).double()
    return torch.stack([own, probability * own, probability * (1 - own)]).sum(dim=1)
