"""SCR, supervised contrastive replay: contrast new and replayed images, predict the nearest mean.

Mai et al., "Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier in Online
Class-Incremental Continual Learning", CVPR workshops 2021.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

import torch

from onpro import losses
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.ncm import NearestMean, PredictsNearestMean
from onpro.methods.registry import register
from onpro.methods.settings import MAX_DIMENSION, MIN_TEMPERATURE, ReplaySettings
from onpro.recipes import FRAMEWORK, IMAGENET, PAPER, on
from onpro.streams import Batch

REVIEW_SHARE = 0.1
"""How much of its gradient a step of the review takes, in the official code."""


@dataclass(frozen=True)
class SCRSettings(ReplaySettings):
    """Settings of SCR."""

    augmentation: str = "scr+ocm"
    """How the second view of an image is augmented, the first being the image itself: none, ocm,
    crop, scr, dvc, gsa, mose, or several joined by + (default from the paper: SCR's own, then the
    one all methods have)."""

    temperature: float = 0.07
    """Temperature of the contrast (default from the paper)."""

    projection: int = 128
    """Dimension of the linear projection, 0 for none (default from the paper)."""

    review: bool = False
    """When a task ends, go through the memory once more, with a tenth of the gradient (default
    from the paper; on in some runs of the official code)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(MIN_TEMPERATURE, "temperature")
        self.require_between(0, MAX_DIMENSION, "projection")


@register(
    "scr",
    SCRSettings,
    title="Supervised contrastive replay",
    paper="Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier in Online "
    "Class-Incremental Continual Learning",
    year=2021,
    memory="images, batch reservoir",
    inference="nearest class mean",
    images_per_step="148",
    data=on(IMAGENET, augmentation="ocm"),
    recipes={
        "paper": PAPER,
        "original": FRAMEWORK.varied(
            "its own code's numbers, with a linear projection",
            augmentation="scr",
            replay_batch=100,
        ),
        "original-review": FRAMEWORK.varied(
            "its own code's runs: the memory reviewed when a task ends",
            augmentation="scr",
            replay_batch=100,
            temperature=0.1,
            review=True,
        ),
    },
)
class SCR(PredictsNearestMean[SCRSettings]):
    """L = SupCon of two views of replayed and new images; the linear head is not used."""

    remembers = True

    def __init__(self, settings: SCRSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network(projection=settings.projection)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.nearest_mean = NearestMean()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on replayed and new images, once any are stored, then the memory."""
        terms: Terms = {}
        if not self.memory.is_empty:
            new = Labelled(self.normalise(batch.images), batch.labels)
            terms = self.terms(self.sample_replay(self.settings.replay_batch).then(new))
            self.minimise(terms)
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, samples: Labelled) -> Terms:
        """SupCon of the images and their augmented versions, each in a forward pass of its own."""
        views = samples.images, self.augment(samples.images)
        z = self.network.embed(torch.cat(list(self.network.features_each(*views))))
        labels, temperature = samples.labels.repeat(2), self.settings.temperature
        return {"supcon": losses.supervised_contrast(z @ z.T, labels, temperature).mean()}

    def rehearsal(self) -> Iterator[Batch]:
        """The review, where it is on: the memory in whole replay batches."""
        if self.settings.review:
            stored, size = len(self.memory), self.settings.replay_batch
            generator, device = self.random["memory"], self.context.device
            order = torch.randperm(stored, generator=generator, device=device)
            for first in range(0, stored - size + 1, size):
                replay = self.memory.take(order[first : first + size])
                yield Batch(replay.images, replay.labels, task=None, classes=())

    def rehearse(self, stored: Batch) -> Terms:
        """One small optimizer step of the review."""
        terms = self.terms(Labelled(self.normalise(stored.images), stored.labels))
        terms = {name: REVIEW_SHARE * term for name, term in terms.items()}
        self.minimise(terms)
        return terms
