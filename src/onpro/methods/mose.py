"""MOSE, multi-level online sequential experts: an expert after each stage teaches the last.

Yan et al., "Orchestrate Latent Expertise: Advancing Online Continual Learning with Multi-Level
Supervision and Reverse Self-Distillation", CVPR 2024.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from onpro.losses import (
    MASKED_LOGIT,
    NO_CLASS,
    feature_distance,
    masked_cross_entropy,
    supervised_contrast,
)
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.known import KnownClasses, MeetsClasses, outputs_of
from onpro.methods.parts.ncm import NearestMean, PredictsNearestMean
from onpro.methods.parts.sets import first_of, joined, sample_of
from onpro.methods.registry import register
from onpro.methods.settings import MAX_DIMENSION, MIN_TEMPERATURE, AdamSettings
from onpro.nn.experts import ExpertNetwork
from onpro.recipes import IMAGENET, SHORT_STREAMS, Recipe, on
from onpro.streams import Batch


@dataclass(frozen=True)
class MOSESettings(AdamSettings):
    """Settings of MOSE."""

    augmentation: str = "mose"
    """How the second half of the views is augmented, the first being images and mirrored copies:
    none, ocm, crop, scr, dvc, gsa, mose, or several joined by + (default from the official code:
    gray, resized crop)."""

    learning_rate: float = 1e-3
    """Learning rate of Adam (default from the official code)."""

    weight_decay: float = 1e-4
    """Weight decay of Adam, added to the gradient (default from the official code)."""

    betas: tuple[float, float] = (0.9, 0.999)
    """Betas of Adam (default from the official code)."""

    replay_batch: int = 64
    """Number of stored images that join the new batch in the first task, and size of the balanced
    set later (default from the official code)."""

    new_replay: int = 22
    """Number of stored images of the current task that join the new batch after the first task
    (default from the official code)."""

    replay_per_class: int = 7
    """At most this many images of earlier tasks in the balanced set for each class seen so far
    (default from the official code)."""

    temperature: float = 0.07
    """Temperature of the contrast between images (default from the official code)."""

    projection: int = 128
    """Dimension of the linear projection of each expert (default from the official code)."""

    balanced_weight: float = 2.0
    """Weight of the cross-entropy of the balanced set (default from the official code)."""

    prediction: Literal["last", "mixture"] = "last"
    """Which experts predict: the last one, MOSE (default from the official code), or all of them,
    MOE-MOSE."""

    classifier: Literal["nearest-mean", "linear"] = "nearest-mean"
    """How an expert predicts: by the nearest class mean of the memory (default from the official
    code) or by its linear head (ours)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(MIN_TEMPERATURE, "temperature")
        self.require_at_least(0, "new_replay", "balanced_weight")
        self.require_at_least(1, "replay_per_class")
        self.require_between(1, MAX_DIMENSION, "projection")


@register(
    "mose",
    MOSESettings,
    title="Multi-level online sequential experts",
    paper="Orchestrate Latent Expertise: Advancing Online Continual Learning with Multi-Level "
    "Supervision and Reverse Self-Distillation",
    year=2024,
    memory="images, batch reservoir",
    inference="nearest class mean",
    images_per_step="296 in the first task, then up to 384",
    data={
        **IMAGENET,
        **on(SHORT_STREAMS, projection=64, learning_rate=5e-3),
        "tiny": {"projection": 64, "learning_rate": 5e-3, "replay_batch": 8, "new_replay": 4},
    },
    recipes={
        "original": Recipe("its own code's numbers: the defaults", {}),
        "mixture": Recipe("MOE-MOSE: all experts predict", {"prediction": "mixture"}),
    },
)
class MOSE(MeetsClasses[MOSESettings], PredictsNearestMean[MOSESettings]):
    """L = Σ over experts of SupCon + CE(new) + 2·CE(balanced) + distance of the last expert."""

    remembers = True
    takes_added_terms = True
    network: ExpertNetwork

    def __init__(self, settings: MOSESettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network(kind=ExpertNetwork, projection=settings.projection)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.known = KnownClasses(self.network.classes, context.device)
        self.nearest_mean = NearestMean()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the new and the balanced set, once any are stored; the memory."""
        self.known.meet(batch.labels)
        terms: Terms = {}
        if not self.memory.is_empty:
            new = Labelled(self.normalise(batch.images), batch.labels)
            sets = self.new_set(new), self.balanced_set(new)
            terms = self.descend(lambda: self.terms(*sets) | self.added_terms(new))
        self.remember(batch)
        return terms

    def new_set(self, new: Labelled) -> Labelled:
        """The batch and, after the first of a task, stored images of the task's classes."""
        settings, progress = self.settings, self.progress
        count = settings.new_replay if progress.task else settings.replay_batch
        return joined(
            new, sample_of(self, self.known.current, count * (progress.steps_in_task > 0))
        )

    def balanced_set(self, new: Labelled) -> Labelled:
        """New images and images of earlier tasks, as many as their classes; none in the first."""
        progress, size = self.progress, self.settings.replay_batch
        if progress.task == 0:
            return first_of(new, 0)
        seen, before = len(progress.seen), len(progress.seen_before_task)
        part = first_of(new, size * (seen - before) // seen)
        rest = min(size - len(part.labels), self.settings.replay_per_class * seen)
        return joined(part, sample_of(self, self.known.old, rest))

    def terms(self, new: Labelled, balanced: Labelled) -> Terms:
        """The four terms of the loss, summed over the experts; one forward pass of both sets."""
        settings, network = self.settings, self.network
        sets = [samples for samples in (new, balanced) if len(samples.labels)]
        labels = torch.cat([samples.labels.repeat(4) for samples in sets])
        features = network.experts(
            network.features(torch.cat([self.four_views(samples.images) for samples in sets]))
        )
        counted = (labels != NO_CLASS)[:, None]
        adapted = normalize(network.adaptation(features[-1])) * counted
        everything = torch.ones_like(self.known.seen)
        competing = everything if self.progress.task == 0 else self.known.current
        competing = outputs_of(competing, network.outputs_per_class, new.labels)
        all_outputs = outputs_of(everything, network.outputs_per_class)

        distances = [
            feature_distance(adapted, normalize(h.detach()) * counted) for h in features[:-1]
        ]
        contrast, of_new, of_balanced = [], [], []
        for h, head, projector in zip(
            features, network.classifiers(), network.projectors, strict=True
        ):
            z = normalize(projector(h))
            contrast.append(masked_contrast(z, labels, settings.temperature))
            logits, rows = head(h), 4 * len(new.labels)
            of_new.append(masked_cross_entropy(logits[:rows], labels[:rows], competing))
            of_balanced.append(masked_cross_entropy(logits[rows:], labels[rows:], all_outputs))
        terms = {
            "contrast": torch.stack(contrast).sum(),
            "new": torch.stack(of_new).sum(),
            "distillation": torch.stack(distances).sum(),
        }
        if len(balanced.labels):
            terms["balanced"] = settings.balanced_weight * torch.stack(of_balanced).sum()
        return terms

    def four_views(self, images: Tensor) -> Tensor:
        """Images and mirrored copies, then all of them augmented, (4n, 3, height, width)."""
        both = torch.cat([images, images.flip(3)])
        return torch.cat([both, self.augment(both)])

    def eval_scores(self, images: Tensor) -> Tensor:
        """Mean scores of the experts that predict, by the nearest class mean or by their heads."""
        if self.settings.classifier == "nearest-mean":
            return self.nearest_mean.scores(self, images, self.predicting_features)
        features = self.predicting_features(images)
        heads = self.predictor.classifiers()[-len(features) :]
        logits = torch.stack([head(h) for head, h in zip(heads, features, strict=True)])
        return self.network.upright(logits.mean(dim=0))

    def predicting_features(self, images: Tensor) -> Sequence[Tensor]:
        """Features of network input, of the experts that predict."""
        features = self.network.experts(self.predictor.encode(images))
        return features if self.settings.prediction == "mixture" else features[-1:]

    def forget(self, label: int) -> None:
        """Drop a class in every classifier."""
        super().forget(label)
        for output in self.network.outputs_of(label):
            for head in self.network.classifiers()[:-1]:
                head.renew(output, generator=self.random["growth"], optimizer=self.optimizer)


def masked_contrast(z: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """SupCon of unit vectors (n, dim), mean over the rows that have a label (n,).

    Rows labelled `NO_CLASS` neither count nor are contrasted with.
    """
    counted = labels != NO_CLASS
    similarity = (z @ z.T).masked_fill(~counted, MASKED_LOGIT)
    losses = supervised_contrast(similarity, labels, temperature)
    return losses.where(counted, 0.0).sum() / counted.sum()
