"""A chain of views, each more augmented than the one before, along which learners distil."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from onpro.augment import ColorJitter, OnPixels, RandAugmentation, ScrAugmentation
from onpro.losses import softened_divergence
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.added import AddedLoss, of_each
from onpro.methods.parts.apf import Mixture
from onpro.methods.settings import Settings


@dataclass(frozen=True)
class ChainSettings(Settings):
    """Settings of the chain of views."""

    operations: int = 3
    """Operations of RandAugment from one view to the next (default from the official code)."""

    magnitude: int = 15
    """Strength of RandAugment, from 0 to 30 (default from the official code, for CIFAR)."""

    operations_per: Literal["batch", "image"] = "batch"
    """Whether a batch shares its operations (default from the official code) or each image draws
    its own."""

    chain_ce_weight: float = 0.5
    """Weight of the cross-entropy of the four views (default from the official code)."""

    chain_rivals: Literal["all", "task", "batch", "none", "shown"] = "all"
    """Classes that new images compete with in that cross-entropy. all: all of them (default from
    the official code); batch: those of the batch and those not seen yet (official code, for
    ER-ACE); task: those of the current task; none: only replayed images learn their labels; shown:
    all images compete with all classes, each as much as a step shows it (the last three are
    ours)."""

    separate_chains: bool = False
    """Show new and replayed images in two chains (default from the official code: for ER-ACE
    only)."""

    chain_weight: float = 1.0
    """Weight of the distillation along the chain (default from the official code)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "operations", "chain_ce_weight", "chain_weight")
        self.require_between(0, 30, "magnitude")


class ChainLoss(AddedLoss[ChainSettings]):
    """Adds w·Σ_s CE(x_s) + λ·[Σ_{s<3} KL(x_{s+1}→x_s) + KL(x₃→x₃)] to the loss of a method.

    x₀ is an image, x₁ its resized crop, x₂ and x₃ are RandAugment of the view before. The harder
    view is what another learner makes of it, or this one if there is no other.
    """

    def __init__(self, settings: ChainSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.learns_new_by_replay_only &= settings.chain_rivals == "none"
        crop = ScrAugmentation(area=(0.6, 1.0), jitter=ColorJitter(probability=0.0), gray=0.0)
        harder = RandAugmentation(settings.operations, settings.magnitude, settings.operations_per)
        steps = crop, harder, harder
        self.chain = [OnPixels(step, context.normalise) for step in steps]

    def terms(self, *samples: Any) -> Terms:
        """The terms of the method; of nothing but cross-entropy, one more of the chain."""
        if not super().has_plain_loss:
            return super().terms(*samples)
        terms = self.plain_terms(*samples)
        return {name: self.settings.chain_ce_weight * term for name, term in terms.items()}

    def added_terms(self, new: Labelled, old: Labelled | None = None, *mixed: Any) -> Terms:
        """The terms of the chain, of each learner."""
        old = self.replayed(old)
        return super().added_terms(new, old, *mixed) | self.chain_terms(new, old, *mixed)

    def chain_terms(self, new: Labelled, old: Labelled, *mixed: Any) -> Terms:
        """Cross-entropy and distillation along the chain, of one learner or of two."""
        shown = self.shown(new, old, *mixed)
        if shown is None:
            return {}
        count = len(new.labels)
        if not self.settings.separate_chains or count == len(shown.first):
            return of_each(self.of_chain(shown, count))
        of_new = self.of_chain(shown.rows(slice(count)), count)
        of_old = self.of_chain(shown.rows(slice(count, None)), 0)
        if self.settings.chain_rivals == "none":
            of_new = [{"chain": terms["chain"]} for terms in of_new]
        for terms, others in zip(of_old, of_new, strict=True):
            for name, term in others.items():
                terms[name] = terms[name] + term
        return of_each(of_old)

    def of_chain(self, shown: Mixture, new: int) -> list[Terms]:
        """The terms of one chain of images, of each learner; the first `new` images are new."""
        *easier, hardest = self.views(shown.images)
        logits = []
        for learner in self.learners:
            of_hardest, *of_easier = self.logits_of(learner, hardest, *easier)
            logits.append([*of_easier, of_hardest])
        return [self.chained(shown, new, *pair) for pair in zip(logits, logits[::-1], strict=True)]

    def chained(self, shown: Mixture, new: int, own: list[Tensor], taught: list[Tensor]) -> Terms:
        """Cross-entropy of all views, and what the other learner makes of the next harder one.

        Args:
            shown: the images.
            new: how many of them, the first, are new.
            own: logits of x₀ … x₃.
            taught: those of the other learner.
        """
        settings = self.settings
        of_labels = [self.label_loss(view, shown, new, settings.chain_rivals) for view in own]
        pairs = zip(own, [*taught[1:], taught[-1]], strict=True)
        divergence = torch.stack([softened_divergence(*pair) for pair in pairs])
        return {
            "chain_ce": settings.chain_ce_weight * torch.stack(of_labels).sum(),
            "chain": settings.chain_weight * divergence.sum(),
        }

    def views(self, images: Tensor) -> list[Tensor]:
        """x₀ … x₃: the images, and views of them, each augmented from the one before."""
        views = [images]
        for harder in self.chain:
            views.append(harder(views[-1], self.random["augmentation"]))
        return views
