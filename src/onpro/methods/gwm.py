"""GWM, a global workspace model: two students and the moving average of their weights.

Su et al., arXiv 2508.08677, 2026. Two students of the same start see different augmentations and
teach each other; the moving average of both teaches them too, and at the end of a task they move
towards it.
No code is public: what the paper leaves open is our reading, see the page of the method.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from onpro.augment import OnPixels, RandAugmentation, ScrAugmentation
from onpro.losses import softened_divergence
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.added import of_each
from onpro.methods.parts.apf import Mixture
from onpro.methods.parts.peers import Peers
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings, require
from onpro.nn.average import MovingAverage, move_towards


@dataclass(frozen=True)
class GWMSettings(Settings):
    """Settings of the students and their average."""

    student_rivals: Literal["all", "task", "batch", "none", "shown"] = "all"
    """Classes that new images compete with in the added cross-entropy. all: all of them (default
    from the paper); task: those of the current task; batch: those of the batch and those not seen
    yet; none: only replayed images learn their labels; shown: all images compete with all classes,
    each as much as a step shows it (the last four are ours)."""

    average_weight: float = 5.5
    """Weight λ of the distillation from the average (ours, as in mkd; the paper names none)."""

    average_rate: float = 0.01
    """Share α of the students' weights that moves into the average at each step (default from the
    paper)."""

    fusion: float = 0.5
    """Share γ of the way that the students move to the average at the end of a task (default from
    the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "average_weight")
        self.require_between(0, 1, "fusion")
        require(0 < self.average_rate < 1, "the average rate must be above 0 and below 1.")


@register_wrapper(
    "gwm",
    GWMSettings,
    title="two students and the average of their weights",
    paper="Multi-level Collaborative Distillation Meets Global Workspace Model",
    year=2026,
    inference="linear head, mean probability of two learners",
    images_per_step="twice as many, 296 more, and 148 through the average",
    bases={"er": {"optimizer": "adamw", "learning_rate": 5e-4, "weight_decay": 1e-4}},
)
class GWM(Peers[GWMSettings]):
    """L + CE(S(V)) + CE(S(V̂)) + KL(S′(V̂′)→S(V̂)) + λ·KL(A(V̂)→S(V̂)), of each student S.

    V̂ is augmented by crop, flip, jitter and gray for the first student, by RandAugment for the
    second.
    """

    same_start = True

    def __init__(self, settings: GWMSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.learns_new_by_replay_only &= settings.student_rivals == "none"
        self.average = MovingAverage(self.network, settings.average_rate)
        kinds = ScrAugmentation(), RandAugmentation(number=3, magnitude=15)
        self.augmentations = [OnPixels(kind, context.normalise) for kind in kinds]

    def terms(self, *samples: Any) -> Terms:
        """The terms of the method, of both students."""
        if super().has_plain_loss:
            return self.plain_terms(*samples)
        return super().terms(*samples)

    def added_terms(self, new: Labelled, old: Labelled | None = None, *mixed: Any) -> Terms:
        """What each student learns from the other and from the average."""
        old = self.replayed(old)
        terms, samples = super().added_terms(new, old, *mixed), self.shown(new, old, *mixed)
        if samples is None:
            return terms
        views = [step(samples.images, self.random["augmentation"]) for step in self.augmentations]
        logits = [
            self.logits_of(student, samples.images, view)
            for student, view in zip(self.learners, views, strict=True)
        ]
        averages = [self.network.upright(self.average.logits(view)) for view in views]
        taught = [
            self.taught(samples, len(new.labels), raw, view, other, average)
            for (raw, view), (_, other), average in zip(logits, logits[::-1], averages, strict=True)
        ]
        return terms | of_each(taught)

    def taught(
        self,
        samples: Mixture,
        new: int,
        raw: Tensor,
        view: Tensor,
        other: Tensor,
        average: Tensor,
    ) -> Terms:
        """The terms of a student.

        Args:
            samples: the images.
            new: how many of them, the first, are new.
            raw: its logits of the images as they are.
            view: its logits of its view.
            other: the other student's logits of its own view.
            average: the average's logits of the view.
        """
        rivals, weight = self.settings.student_rivals, self.settings.average_weight
        of_labels = [self.label_loss(logits, samples, new, rivals) for logits in (raw, view)]
        return {
            "student_ce": torch.stack(of_labels).sum(),
            "student_kl": softened_divergence(view, other),
            "average_kl": weight * softened_divergence(view, average),
        }

    def minimise(self, terms: Terms) -> None:
        """One optimizer step of each student, which the average follows."""
        super().minimise(terms)
        if terms:
            self.average.follow(*(student.network for student in self.learners))

    def combined(self, scores: Tensor) -> Tensor:
        """The logarithm of the mean of the students' probabilities."""
        return scores.softmax(dim=2).mean(dim=0).log()

    def grow(self, classes: int) -> None:
        """Make room for classes, also in the average."""
        super().grow(classes)
        self.average.grow(self.network)

    def forget(self, label: int) -> None:
        """Drop a class, also from the average."""
        super().forget(label)
        self.average.renew(self.network, self.network.outputs_of(label))

    def end_task(self) -> None:
        """Move the students towards the average."""
        super().end_task()
        for student in self.learners:
            move_towards(student.network, self.average.network, self.settings.fusion)
