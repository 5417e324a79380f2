"""PCR, proxy-based contrastive replay: contrast images with the classifier's weights.

Lin et al., "PCR: Proxy-based Contrastive Replay for Online Class-Incremental Continual Learning",
CVPR 2023.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from onpro.losses import proxy_contrast
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.registry import register
from onpro.methods.settings import MIN_TEMPERATURE, ReplaySettings
from onpro.nn.network import CosineNetwork
from onpro.recipes import FRAMEWORK, IMAGENET, SHORT_STREAMS, on
from onpro.streams import Batch

EPSILON = 1e-6
"""What the official code adds to norms."""


@dataclass(frozen=True)
class PCRSettings(ReplaySettings):
    """Settings of PCR."""

    augmentation: str = "scr"
    """How the second view of an image is augmented, the first being the image itself: none, ocm,
    crop, scr, dvc, gsa, mose, or several joined by + (default from the official code)."""

    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    """What takes the steps: adam (default from MKD's port), adamw, or sgd (the official code)."""

    learning_rate: float = 5e-4
    """Length of the optimizer's steps (default from MKD's port, for Adam)."""

    temperature: float = 0.09
    """Temperature of the contrast between images and proxies (default from the official code)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(MIN_TEMPERATURE, "temperature")


@register(
    "pcr",
    PCRSettings,
    title="Proxy-based contrastive replay",
    paper="PCR: Proxy-based Contrastive Replay for Online Class-Incremental Continual Learning",
    year=2023,
    memory="images, batch reservoir",
    inference="cosine head",
    images_per_step="148",
    data={
        **IMAGENET,
        **on(SHORT_STREAMS, learning_rate=5e-3),
        "tiny": {"learning_rate": 5e-3, "replay_batch": 16},
    },
    recipes={
        "original": FRAMEWORK.varied(
            "its own code's numbers", augmentation="scr", optimizer="sgd", learning_rate=0.1
        ),
    },
)
class PCR(Method[PCRSettings]):
    """L = CE of two views of new and replayed images over the classes present, by their counts."""

    remembers = True
    takes_added_terms = True

    def __init__(self, settings: PCRSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network(
            kind=CosineNetwork, scale=1 / settings.temperature, epsilon=EPSILON
        )
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on new and replayed images, once any are stored, then the memory."""
        terms: Terms = {}
        if not self.memory.is_empty:
            new = Labelled(self.normalise(batch.images), batch.labels)
            old = self.sample_replay(self.settings.replay_batch)
            terms = self.descend(lambda: self.terms(new, old) | self.added_terms(new, old))
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, new: Labelled, old: Labelled) -> Terms:
        """Contrast with proxies: a forward pass of both views of new images, then of replay."""
        logits = torch.cat(
            self.network.logits_each(self.two_views(new.images), self.two_views(old.images))
        )
        labels = torch.cat([new.labels.repeat(2), old.labels.repeat(2)])
        return {"proxy": proxy_contrast(logits, labels)}

    def two_views(self, images: Tensor) -> Tensor:
        """The images (n, 3, height, width) as they are, then augmented."""
        return torch.cat([images, self.augment(images)])

    def eval_scores(self, images: Tensor) -> Tensor:
        """Logits of the classes seen so far, −∞ for others, whose proxies are random."""
        return seen_only(super().eval_scores(images), self.progress.seen)


def seen_only(logits: Tensor, seen: Collection[int]) -> Tensor:
    """Logits (n, classes) with −∞ for classes that have not been seen; a host–device sync."""
    unseen = [label for label in range(logits.shape[1]) if label not in seen]
    index = torch.tensor(unseen, dtype=torch.int64, device=logits.device)
    return logits.index_fill(1, index, -torch.inf)
