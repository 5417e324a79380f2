"""CCL-DC, collaborative continual learning with a distillation chain.

Wang et al., CVPR 2024. Two peers see an image in four views, each more augmented than the one
before, and each peer learns what the other makes of the harder view. One learner alone can do the
same with itself.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from onpro.augment import ColorJitter, OnPixels, RandAugmentation, ScrAugmentation
from onpro.losses import softened_divergence
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.apf import Mixture
from onpro.methods.parts.peers import Peers, of_each
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings


@dataclass(frozen=True)
class CCLDCSettings(Settings):
    """Settings of the chain of views and of the peers."""

    peers: Literal[1, 2] = 2
    """Learners: two that teach each other (default from the paper), or one that teaches itself."""

    chain_ce_weight: float = 0.5
    """Weight of the cross-entropy of the four views (default from the official code)."""

    chain_rivals: Literal["all", "task", "none"] = "all"
    """Classes that new images compete with in that cross-entropy: all (default from the official
    code), those of the current task, or none: replayed images alone (ours)."""

    chain_weight: float = 1.0
    """Weight of the distillation along the chain (default from the official code)."""

    operations: int = 3
    """Operations of RandAugment from one view to the next (default from the official code)."""

    magnitude: int = 15
    """Strength of RandAugment, from 0 to 30 (default from the official code, for CIFAR)."""

    operations_per: Literal["batch", "image"] = "batch"
    """Whether a batch shares its operations (default from the official code) or each image draws
    its own."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "chain_ce_weight", "chain_weight", "operations")
        self.require_between(0, 30, "magnitude")


@register_wrapper(
    "ccldc",
    CCLDCSettings,
    title="two peers and a distillation chain",
    paper="Improving Plasticity in Online Continual Learning via Collaborative Learning",
    year=2024,
    inference="linear head, mean of two learners",
    images_per_step="twice as many, and 592",
    bases={
        "er": {
            "optimizer": "adamw",
            "learning_rate": 5e-4,
            "weight_decay": 1e-4,
            "augmentation": "scr",
            "chain_weight": 2.0,
        },
        "ocm": {"chain_ce_weight": 0.25, "chain_weight": 4.0},
        "onpro": {"chain_ce_weight": 0.25},
    },
    data={
        "tinyimagenet": {"operations": 1, "magnitude": 11},
        "imagenet100": {"magnitude": 11},
        "imagenet1k": {"magnitude": 11},
    },
)
class CCLDC(Peers[CCLDCSettings]):
    """L + w·Σ_s CE(a(x_s)) + λ·[Σ_{s<3} KL(b(x_{s+1})→a(x_s)) + KL(b(x₃)→a(x₃))], of each peer.

    x₀ is an image, x₁ its resized crop, x₂ and x₃ are RandAugment of the view before.
    """

    def __init__(self, settings: CCLDCSettings, context: Context) -> None:
        super().__init__(settings, context)
        if settings.peers == 2:
            self.peer = self.make_peer()
        crop = ScrAugmentation(area=(0.6, 1.0), jitter=ColorJitter(probability=0.0), gray=0.0)
        harder = RandAugmentation(settings.operations, settings.magnitude, settings.operations_per)
        self.chain = [OnPixels(step, context.normalise) for step in (crop, harder, harder)]

    def terms(self, new: Labelled, old: Labelled, *others: Any) -> Terms:
        """The terms of each learner: the method's own, and those of the chain."""
        own, samples = self.own_terms(new, old, *others), self.shown(new, old, *others)
        if samples is None:
            return of_each(own)
        if self.has_plain_loss:  # one cross-entropy more
            own = [{"ce": self.settings.chain_ce_weight * terms["ce"]} for terms in own]
        *easier, hardest = self.views(samples.images)
        logits = []
        for learner in self.learners:
            of_hardest, *of_easier = self.logits_of(learner, hardest, *easier)
            logits.append([*of_easier, of_hardest])
        taught = [
            self.chained(samples, len(new.labels), *pair)
            for pair in zip(logits, logits[::-1], strict=True)
        ]
        return of_each([terms | added for terms, added in zip(own, taught, strict=True)])

    def chained(self, samples: Mixture, new: int, own: list[Tensor], taught: list[Tensor]) -> Terms:
        """Cross-entropy of all views, and what the other learner makes of the next harder one.

        Args:
            samples: the images.
            new: how many of them, the first, are new.
            own: logits of x₀ … x₃.
            taught: those of the other learner.
        """
        settings = self.settings
        of_labels = [self.label_loss(view, samples, new, settings.chain_rivals) for view in own]
        pairs = zip(own, [*taught[1:], taught[-1]], strict=True)
        divergence = torch.stack([softened_divergence(*pair) for pair in pairs])
        return {
            "chain_ce": settings.chain_ce_weight * torch.stack(of_labels).sum(),
            "chain": settings.chain_weight * divergence.sum(),
        }

    def views(self, images: Tensor) -> list[Tensor]:
        """x₀ … x₃: the images, each view augmented from the one before."""
        views = [images]
        for step in self.chain:
            views.append(step(views[-1], self.random["augmentation"]))
        return views
