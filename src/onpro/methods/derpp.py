"""DER++, dark experience replay: replayed images recall the logits they had, and their labels.

Buzzega et al., "Dark Experience for General Continual Learning: a Strong, Simple Baseline",
NeurIPS 2020.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from onpro.memory import Replay, retrieval
from onpro.memory.reservoir import reservoir_sequential
from onpro.methods.base import Context, Method, total
from onpro.methods.registry import register
from onpro.methods.replay import ReplaySettings
from onpro.methods.settings import require
from onpro.streams import Batch


@dataclass(frozen=True)
class DERppSettings(ReplaySettings):
    """Settings of DER++."""

    augmentation: str = "crop+ocm"
    """How training images are varied: none, ocm, crop, scr, dvc, or several joined by + (default
    from the paper: its own shift and flip, then the common resized crop, flip, gray)."""

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
        """Refuse what cannot work."""
        super().check()
        require(self.logit_weight >= 0, "the logit weight must not be negative.")
        require(self.label_weight >= 0, "the label weight must not be negative.")


@register(
    "derpp",
    DERppSettings,
    title="Dark experience replay ++",
    paper="Dark Experience for General Continual Learning: a Strong, Simple Baseline",
    year=2020,
    memory="images and logits, exact reservoir",
    inference="linear head",
    images_per_step="138",
)
class DERpp(Method[DERppSettings]):
    """L = CE(X) + α·MSE(Xb₁, stored logits) + β·CE(Xb₂), Xb₁ and Xb₂ two independent draws."""

    def __init__(self, settings: DERppSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory(extra={"logits": ((self.network.classes,), torch.float32)})

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on the batch and two replay batches, then the memory's update."""
        settings = self.settings
        replays = [self.replay(), self.replay()] if len(self.memory) else []
        sets = [batch.images, *(replay.images for replay in replays)]
        features = self.encode_each(*(self.vary(self.prepare(images)) for images in sets))
        logits, *of_replays = map(self.network.classifier, features)
        terms = {"new": cross_entropy(logits, batch.labels)}
        if replays:
            recalled = mse_loss(of_replays[0], replays[0].fields["logits"])
            relearned = cross_entropy(of_replays[1], replays[1].labels)
            terms["logits"] = settings.logit_weight * recalled
            terms["labels"] = settings.label_weight * relearned
        self.descend(total(terms))
        # What the network said of the augmented images in train mode, before the step.
        reservoir_sequential(
            self.memory, batch.images, batch.labels, self.random["memory"], logits=logits
        )
        return terms

    def replay(self) -> Replay:
        """A random replay batch with its stored logits."""
        count = self.settings.replay_batch
        return self.memory.take(retrieval.uniform(self.memory, count, self.random["memory"]))

    def grow(self, classes: int) -> None:
        """Widen the classifier and the stored logits; a class unknown then had the logit 0."""
        super().grow(classes)
        self.memory.grow_field("logits", self.network.classes)

    def forget(self, label: int) -> None:
        """Give a class up: what other images recall of it too."""
        super().forget(label)
        self.memory.fields["logits"][:, label] = 0

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state, whose logits are of as many classes as the network's."""
        super().load_state_dict(state)
        if self.memory.fields["logits"].shape[1] != self.network.classes:
            raise ValueError("the logits of the state are not of the classes of its network")
