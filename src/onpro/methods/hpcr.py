"""HPCR, holistic proxy-based contrastive replay: PCR with a cyclic weight and distillation.

Lin et al., "HPCR: Holistic Proxy-based Contrastive Replay for Online Continual Learning", 2023.
"""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from onpro import losses
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.known import TaskSteps
from onpro.methods.parts.stored import StoresLogits
from onpro.methods.pcr import EPSILON, PCRSettings, seen_only
from onpro.methods.registry import register
from onpro.methods.settings import require
from onpro.nn.network import CosineNetwork
from onpro.recipes import FRAMEWORK, IMAGENET, SHORT_STREAMS, on
from onpro.streams import Batch

PERIOD = 500
"""Number of steps of a cycle of the contrast's weight, in the official code."""


@dataclass(frozen=True)
class HPCRSettings(PCRSettings):
    """Settings of HPCR."""

    least_weight: float = 0.5625
    """Weight of the contrast in the first step of a task, and after each 500 (default from the
    official code)."""

    largest_weight: float = 1.8
    """Weight of the contrast half-way between these steps (default from the official code)."""

    logit_weight: float = 0.1
    """Weight of the distance to the stored logits (default from the official code)."""

    relation_weight: float = 0.5
    """Weight of the cross-entropy between similarities of stored and of current features (default
    from the official code)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "least_weight", "logit_weight", "relation_weight")
        require(
            0 < self.largest_weight >= self.least_weight,
            "the largest weight must be above 0 and at least the least weight.",
        )


class Outputs(NamedTuple):
    """Logits and features of images, to be stored with them."""

    logits: Tensor
    features: Tensor


@register(
    "hpcr",
    HPCRSettings,
    title="Holistic proxy-based contrastive replay",
    paper="HPCR: Holistic Proxy-based Contrastive Replay for Online Continual Learning",
    year=2023,
    memory="images, logits and features, batch reservoir",
    inference="cosine head",
    images_per_step="148",
    data={
        "cifar10": {"logit_weight": 0.01},
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
class HPCR(StoresLogits[HPCRSettings]):
    """L = σ·L_PCR + α·MSE(stored logits) + β·CE(similarities of stored features)."""

    remembers = True
    takes_added_terms = True
    network: CosineNetwork

    def __init__(self, settings: HPCRSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network(
            kind=CosineNetwork, scale=1 / settings.temperature, epsilon=EPSILON
        )
        self.optimizer = settings.make_optimizer(self.network.parameters())
        width = self.network.encoder.out_features
        self.memory = self.make_memory(features=((width,), torch.float32))
        self.task_steps = TaskSteps(context.device)

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on new and replayed images, once any are stored, then the memory."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        outputs: list[Outputs] = []
        if not self.memory.is_empty:
            replay = self.sample_stored(self.settings.replay_batch)
            old = Labelled(self.normalise(replay.images), replay.labels)
            terms = self.terms(new, old, replay.fields, outputs) | self.added_terms(new, old)
            self.minimise(terms)
        else:
            terms = {}
            features = self.network.features(self.two_views(new.images))
            logits = self.network.classifier(features)
            outputs.append(Outputs(logits[: len(batch)], features[: len(batch)]))
        self.remember(
            batch,
            logits=torch.stack([each.logits for each in outputs]).mean(dim=0),
            features=outputs[0].features,
        )
        self.task_steps.advance()
        return terms

    def course(self) -> Hashable:
        """Whether there is an earlier task."""
        return self.progress.task > 0

    def terms(
        self, new: Labelled, old: Labelled, stored: dict[str, Tensor], outputs: list[Outputs]
    ) -> Terms:
        """The contrast with proxies and, after the first task, what replayed images recall.

        Args:
            new: the batch.
            old: the replay batch.
            stored: the fields stored with the replay batch.
            outputs: to it, each learner appends its own of the new images as they are.
        """
        settings, network = self.settings, self.network
        features, of_old = network.features_each(
            self.two_views(new.images), self.two_views(old.images)
        )
        logits, old_logits = network.classifier(features), network.classifier(of_old)
        count = len(new.labels)
        outputs.append(Outputs(logits[:count], features[:count]))
        labels = torch.cat([new.labels.repeat(2), old.labels.repeat(2)])
        contrast = losses.proxy_contrast(torch.cat([logits, old_logits]), labels)
        terms = {"proxy": self.contrast_weight() * contrast}
        if self.progress.task > 0:
            twice = {name: field.repeat(2, 1) for name, field in stored.items()}
            recalled = losses.label_logits_error(old_logits, twice["logits"], labels)
            related = losses.relation_cross_entropy(of_old, twice["features"], settings.temperature)
            terms["logits"] = settings.logit_weight * recalled
            terms["relations"] = settings.relation_weight * related
        return terms

    def two_views(self, images: Tensor) -> Tensor:
        """The images (n, 3, height, width) as they are, then augmented."""
        return torch.cat([images, self.augment(images)])

    def contrast_weight(self) -> Tensor:
        """σ, which rises and falls with the steps of a task."""
        low, high = self.settings.least_weight, self.settings.largest_weight
        phase = 2 * math.pi / PERIOD * self.task_steps.count
        return low + (high - low) * 0.5 * (1 - phase.cos())

    def start_task(self) -> None:
        """A cycle of the contrast's weight begins."""
        self.task_steps.start_task()

    def eval_scores(self, images: Tensor) -> Tensor:
        """Logits of the classes seen so far, −∞ for others, whose proxies are random."""
        return seen_only(super().eval_scores(images), self.progress.seen)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state, whose features are as wide as the network's."""
        super().load_state_dict(state)
        if self.memory.fields["features"].shape[1] != self.network.encoder.out_features:
            raise ValueError("the features of the state are not those of its network")
