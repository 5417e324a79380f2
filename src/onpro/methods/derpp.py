"""DER++, dark experience replay: replayed images recall the logits they had, and their labels.

Buzzega et al., "Dark Experience for General Continual Learning: a Strong, Simple Baseline",
NeurIPS 2020.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from onpro.memory import Replay
from onpro.memory.reservoir import reservoir_sequential
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.stored import StoresLogits
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.recipes import FEW_PIXELS, IMAGENET, PAPER, Recipe, on
from onpro.streams import Batch


@dataclass(frozen=True)
class DERppSettings(ReplaySettings):
    """Settings of DER++."""

    augmentation: str = "crop+ocm"
    """How training images are augmented: none, ocm, crop, scr, dvc, gsa, mose, or several joined by
    + (default from the paper: its own shift and flip, then the common resized crop, flip, gray)."""

    learning_rate: float = 0.03
    """Length of the optimizer's steps (default from the paper, for SGD)."""

    replay_batch: int = 64
    """Number of stored images in each of the two replay batches (default from the paper)."""

    logit_weight: float = 0.1
    """Weight of the distance to the stored logits, the method's alpha (default from the paper)."""

    label_weight: float = 0.5
    """Weight of the cross-entropy of replayed labels, the method's beta (default from the
    paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "logit_weight", "label_weight")


@register(
    "derpp",
    DERppSettings,
    title="Dark experience replay ++",
    paper="Dark Experience for General Continual Learning: a Strong, Simple Baseline",
    year=2020,
    memory="images and logits, exact reservoir",
    inference="linear head",
    images_per_step="138",
    data={
        **on(IMAGENET, augmentation="ocm"),
        **on(FEW_PIXELS, augmentation="ocm", learning_rate=0.1),
    },
    recipes={
        "paper": PAPER,
        "original": Recipe(
            "its own code's numbers, in one pass", {"augmentation": "crop", "replay_batch": 32}
        ),
    },
)
class DERpp(StoresLogits[DERppSettings]):
    """L = CE(X) + α·MSE(Xb₁, stored logits) + β·CE(Xb₂), Xb₁ and Xb₂ independent samples."""

    remembers = True
    memory_policy = staticmethod(reservoir_sequential)
    takes_added_terms = True

    def __init__(self, settings: DERppSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and two replay batches, then the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        count = self.settings.replay_batch
        replay = [] if self.memory.is_empty else [self.sample_stored(count) for _ in range(2)]
        logits: list[Tensor] = []
        terms = self.terms(new, replay, logits)
        if replay:
            second = replay[1]
            terms |= self.added_terms(new, Labelled(self.normalise(second.images), second.labels))
        self.minimise(terms)
        self.remember(batch, logits=torch.stack(logits).mean(dim=0))
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, new: Labelled, replay: Sequence[Replay], logits: list[Tensor]) -> Terms:
        """The terms of the loss, each of a forward pass of its own.

        Args:
            new: X.
            replay: Xb₁ and Xb₂; none as long as nothing is stored.
            logits: to it, each learner appends its own of the augmented new images.
        """
        images = [new.images, *(self.normalise(stored.images) for stored in replay)]
        of_new, *of_replay = self.network.logits_each(*map(self.augment, images))
        logits.append(of_new)
        terms = {"new": cross_entropy(of_new, new.labels)}
        if replay:
            (of_first, of_second), (first, second) = of_replay, replay
            recalled = mse_loss(of_first, first.fields["logits"].to(of_first))
            relearned = cross_entropy(of_second, second.labels)
            terms["logits"] = self.settings.logit_weight * recalled
            terms["labels"] = self.settings.label_weight * relearned
        return terms
