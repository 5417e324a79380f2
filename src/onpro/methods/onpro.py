"""OnPro, online prototype learning.

Wei et al., "Online Prototype Learning for Online Continual Learning", ICCV 2023. The defaults
follow the official code, which is what made the paper's numbers; where the paper's text says
otherwise, a setting offers its reading too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro import losses
from onpro.methods import feedback
from onpro.methods.base import Context
from onpro.methods.contrast import ContrastMethod, ContrastSettings
from onpro.methods.feedback import Mixture
from onpro.methods.registry import register
from onpro.methods.settings import require, require_temperature


@dataclass(frozen=True)
class OnProSettings(ContrastSettings):
    """Settings of OnPro."""

    learning_rate: float = 5e-4
    """Learning rate of Adam (default from the paper)."""

    prototype_temperature: float = 0.5
    """Temperature of the contrast between prototypes (default from the paper)."""

    new_prototypes: bool = True
    """Contrast the prototypes of the new batch (default from the paper)."""

    seen_prototypes: bool = True
    """Contrast the prototypes of the replayed images (default from the paper)."""

    seen_without_new: bool = False
    """Leave the current task's classes out of the replay prototypes' contrast (default from the
    paper; on in one of its ablations)."""

    mixup: bool = True
    """Replay mixed images (default from the paper); off removes the feedback too."""

    feedback: float = 0.25
    """Share of the replay batch mixed from confused pairs of classes, the paper's alpha; 0 leaves
    only random mixup (default from the paper for CIFAR-10)."""

    mixup_probability: float = 0.6
    """Probability of mixing, of a batch and of each image in it, and of a confused pair (default
    from the official code for CIFAR-10)."""

    random_mixup_highest: float = 0.6
    """Random mixup draws its weight between 0 and this (default from the official code)."""

    feedback_mixup_beta: float = 0.4
    """Confused pairs draw their weight from Beta(b, b) of this b (default from the official
    code)."""

    pair_kernel: Literal["inverse", "gaussian"] = "inverse"
    """How the distance of two prototypes becomes a weight: softmax of its inverse (default from
    the official code) or exp(-distance squared) (the paper's text)."""

    pair_rounding: Literal["exact", "plain"] = "exact"
    """How weights become numbers of images: rounded and mended to the exact total (default from
    the official code) or only rounded (the paper's text)."""

    instance_loss: Literal["official", "supcon"] = "official"
    """Contrast between images: in the form of the official code (default) or SupCon summed over
    the images (the paper's text)."""

    views: Literal["raw", "augmented"] = "raw"
    """First view of an image: itself (default from the official code) or augmented (the paper's
    text). The second is always augmented."""

    cross_entropy: Literal["replay", "both", "separate"] = "replay"
    """Images of the cross-entropy after the first task: replayed ones (default from the paper),
    replayed and new in one mean, or the sum of a mean of each."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        require_temperature(self.prototype_temperature, "prototype temperature")
        require(
            self.feedback_mixup_beta > 0,
            f"the feedback mixup beta must be above 0, not {self.feedback_mixup_beta}.",
        )
        shares = {
            "feedback": self.feedback,
            "mixup probability": self.mixup_probability,
            "random mixup's highest weight": self.random_mixup_highest,
        }
        for name, value in shares.items():
            require(0 <= value <= 1, f"{name} must lie between 0 and 1, not {value}.")
        require(
            self.seen_prototypes or not self.seen_without_new,
            "seen prototypes without new ones are asked for, but seen prototypes are off: "
            "switch them on, or leave seen_without_new off.",
        )


@register(
    "onpro",
    OnProSettings,
    title="Online prototype learning",
    paper="Online Prototype Learning for Online Continual Learning",
    year=2023,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="458 in the first task, then up to 2560",
)
class OnPro(ContrastMethod[OnProSettings]):
    """L = L_OPE + L_INS + L_CE.

    Three forwards in train mode stay three: batch-norm statistics follow each of them, and
    evaluation relies on them.
    """

    def __init__(self, settings: OnProSettings, context: Context) -> None:
        super().__init__(settings, context)
        dimension = settings.projection or self.network.encoder.out_features
        self.prototypes = torch.zeros(self.network.classes, dimension, device=context.device)
        """Q: replay prototypes of the last step, a zero row for each absent class."""

    @property
    def learns_new_by_replay_only(self) -> bool:
        """Unless a variant shows the cross-entropy new images too."""
        return self.settings.cross_entropy == "replay"

    def learn_first_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The first task: cross-entropy on new images; replay serves only its prototypes."""
        batches = [torch.cat(self.rotated_views(new))]
        if self.uses_replay_prototypes and len(self.memory):
            old, old_labels = self.draw(self.settings.replay_batch)
            batches.append(self.two_views(old))
        batches.append(self.vary(new))
        of_views, *of_old, features = self.encode_each(*batches)
        terms = {"ins_new": self.instance_new(of_views, labels)}
        for old_features in of_old:
            terms |= self.replay_prototypes(old_features, old_labels)
        terms |= self.new_prototypes(of_views, labels)
        terms["ce"] = cross_entropy(self.network.classifier(features), labels)
        return terms

    def learn_later_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Later tasks: cross-entropy on replayed images, mixed where classes are confused."""
        old, old_labels = self.draw(self.replay_size())
        replay = self.mixed(old, old_labels)
        new_views, replay_views = self.rotated_views(new), self.rotated_views(replay.images)
        classified = self.classified(replay, new, labels)
        batches = [self.vary(classified.images)]
        if self.uses_replay_prototypes:
            batches.append(self.two_views(old))

        of_new, of_replay, features, *of_old = self.encode_views(new_views, replay_views, *batches)
        terms = {
            "ins_new": self.instance_new(of_new, labels),
            "ins_replay": self.instance_replay(of_replay, replay.labels),
            "ce": self.mixed_cross_entropy(features, classified, len(labels)),
        }
        for old_features in of_old:
            terms |= self.replay_prototypes(old_features, old_labels)
        terms |= self.new_prototypes(of_new, labels)
        return terms

    # What is replayed

    def mixed(self, images: Tensor, labels: Tensor) -> Mixture:
        """The replay batch, partly mixed from confused classes, partly at random.

        The first step of a task mixes nothing: the prototypes are those of another task.
        """
        settings, generator = self.settings, self.random["mixup"]
        if not settings.mixup or self.progress.steps_in_task == 0:
            return feedback.unmixed(images, labels)
        base = int(len(labels) * round(1 - settings.feedback, 9))  # 1 − 0.9 is a bit below 0.1
        kept = torch.randperm(len(labels), generator=generator, device=labels.device)[:base]
        randomly = feedback.mix_randomly(
            images[kept],
            labels[kept],
            probability=settings.mixup_probability,
            highest=settings.random_mixup_highest,
            generator=generator,
        )
        if base == len(labels):
            return randomly
        confused = feedback.mix_confused(
            self.memory,
            self.prepare,
            self.prototypes,
            len(labels) - base,
            kernel=settings.pair_kernel,
            rounding=settings.pair_rounding,
            probability=settings.mixup_probability,
            concentration=settings.feedback_mixup_beta,
            generator=generator,
        )
        mixture = feedback.joined(randomly, confused)
        # Plain rounding may give no image, and a small batch no other: then it stays as it is.
        return mixture if len(mixture.first) else feedback.unmixed(images, labels)

    # Terms of the loss

    def first_view(self, images: Tensor) -> Tensor:
        """The image itself, or augmented in the paper's reading."""
        return images if self.settings.views == "raw" else self.vary(images)

    def instance_loss(
        self,
        features: Tensor,
        labels: Tensor,
        official: Callable[[Tensor, Tensor, float], Tensor],
    ) -> Tensor:
        """Contrast between images of equal class and equal rotation."""
        if self.settings.instance_loss == "official":
            return super().instance_loss(features, labels, official)
        similarity = self.similarity(features)
        of_both_views = self.rotated_labels(labels).repeat(2)
        temperature = self.settings.instance_temperature
        return losses.supervised_contrast(similarity, of_both_views, temperature).sum()

    def new_prototypes(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """L_new: contrast between prototypes of the un-rotated new images, block 0 of each view."""
        settings = self.settings
        if not settings.new_prototypes:
            return {}
        first, second = (view[: len(labels)] for view in self.embed(features).chunk(2))
        loss, _, _ = losses.prototype_contrast(
            first, second, labels, self.network.classes, settings.prototype_temperature
        )
        return {"ope_new": loss}

    @property
    def uses_replay_prototypes(self) -> bool:
        """Whether the prototypes of replay are good for anything."""
        return self.settings.seen_prototypes or self.settings.mixup

    def two_views(self, images: Tensor) -> Tensor:
        """Both views of images that are not rotated, one after the other."""
        return torch.cat([self.first_view(images), self.vary(images)])

    def replay_prototypes(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """L_seen: contrast between the prototypes of two views of replay; they become Q."""
        settings = self.settings
        features = features if settings.seen_prototypes else features.detach()
        first, second = self.embed(features).chunk(2)
        classes, temperature = self.network.classes, settings.prototype_temperature
        loss, *means = losses.prototype_contrast(first, second, labels, classes, temperature)
        self.prototypes = torch.stack(means).mean(dim=0).detach()
        if not settings.seen_prototypes:
            return {}
        if settings.seen_without_new:
            old = self.progress.classes_before_task
            loss, *_ = losses.prototype_contrast(first, second, labels, old, temperature)
        return {"ope_seen": loss}

    def classified(self, replay: Mixture, new: Tensor, labels: Tensor) -> Mixture:
        """The images of the cross-entropy: mixed replay, after the new ones where asked for."""
        if self.settings.cross_entropy == "replay":
            return replay
        return feedback.joined(feedback.unmixed(new, labels), replay)

    def mixed_cross_entropy(self, features: Tensor, images: Mixture, new: int) -> Tensor:
        """L_CE of features of mixed images, the first of which may be new."""
        logits = self.network.classifier(features)
        if self.settings.cross_entropy != "separate":
            return losses.mixup_cross_entropy(logits, images.first, images.second, images.weight)
        of_new, of_replay = torch.split(logits, [new, len(logits) - new])
        return cross_entropy(of_new, images.first[:new]) + losses.mixup_cross_entropy(
            of_replay, images.first[new:], images.second[new:], images.weight[new:]
        )

    def grow(self, classes: int) -> None:
        """Widen the classifier and the table of prototypes."""
        super().grow(classes)
        missing = self.network.classes - len(self.prototypes)
        self.prototypes = torch.cat(
            [self.prototypes, self.prototypes.new_zeros(missing, self.prototypes.shape[1])]
        )

    def forget(self, label: int) -> None:
        """Give a class up: its prototype too."""
        super().forget(label)
        self.prototypes[label] = 0
