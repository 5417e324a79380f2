"""SCR, supervised contrastive replay: contrast new and replayed images, predict the nearest mean.

Mai et al., "Supervised Contrastive Replay: Revisiting the Nearest Class Mean Classifier in Online
Class-Incremental Continual Learning", CVPR workshops 2021.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro import losses
from onpro.augment import check_rotation, rotated_labels, rotations
from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context
from onpro.methods.ncm import NearestMeanMethod
from onpro.methods.registry import register
from onpro.methods.replay import ReplaySettings
from onpro.methods.settings import require_dimension, require_temperature
from onpro.streams import Batch

REVIEW_SHARE = 0.1
"""How much of its gradient a step of the review takes, in the official code."""


@dataclass(frozen=True)
class SCRSettings(ReplaySettings):
    """Settings of SCR."""

    augmentation: str = "scr+ocm"
    """How the second view of an image is varied, the first being the image itself: none, ocm,
    crop, scr, dvc, or several joined by + (default from the paper: SCR's own, then the one all
    methods have)."""

    temperature: float = 0.07
    """Temperature of the contrast (default from the paper)."""

    projection: int = 128
    """Dimension of the linear projection, 0 for none (default from the paper)."""

    review: bool = False
    """When a task ends, go through the memory once more, with a tenth of the gradient (default
    from the paper; on in some runs of the official code)."""

    rotations: Literal[1, 4, 16] = 1
    """Rotated copies of each image, each a class of its own in the contrast; 1 for the image alone
    (default from the paper; 16 in its Table A4)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        require_temperature(self.temperature)
        require_dimension(self.projection, "projection")


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
)
class SCR(NearestMeanMethod[SCRSettings]):
    """L = SupCon of two views of replayed and new images; the linear head is never asked."""

    def __init__(self, settings: SCRSettings, context: Context) -> None:
        super().__init__(settings, context)
        check_rotation(context.image_shape, settings.rotations)
        self.network = self.make_network(projection=settings.projection)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on replayed and new images, if there are any stored; then the memory."""
        terms = {}
        if len(self.memory):
            old, old_labels = self.draw(self.settings.replay_batch)
            images = torch.cat([old, self.prepare(batch.images)])
            labels = torch.cat([old_labels, batch.labels])
            terms["supcon"] = self.contrast(images, labels)
            self.descend(terms["supcon"])
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def contrast(self, images: Tensor, labels: Tensor) -> Tensor:
        """SupCon of the images as they are and their augmented versions, in two forwards."""
        settings = self.settings
        views = rotations(images, settings.rotations)
        labels = rotated_labels(labels, settings.rotations, self.network.classes)
        z = self.embed(torch.cat(list(self.encode_each(views, self.vary(views)))))
        similarity = z @ z.T
        return losses.supervised_contrast(similarity, labels.repeat(2), settings.temperature).mean()

    def embed(self, features: Tensor) -> Tensor:
        """z: unit projections of features."""
        return normalize(self.network.project(features))

    def end_task(self) -> None:
        """The review, where it is asked for: the memory in whole replay batches, small steps."""
        if not self.settings.review:
            return
        size, stored = self.settings.replay_batch, len(self.memory)
        generator, device = self.random["memory"], self.context.device
        order = torch.randperm(stored, generator=generator, device=device)
        for slots in order[: stored - stored % size].split(size):
            replay = self.memory.take(slots)
            loss = self.contrast(self.prepare(replay.images), replay.labels)
            self.descend(REVIEW_SHARE * loss)
