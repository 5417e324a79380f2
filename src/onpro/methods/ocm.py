"""OCM, online continual learning through mutual information maximization.

Guo et al., ICML 2022. A contrast between rotated images, in the network and against the network
before the current task, holds on to whatever the images have in common; the classifier is trained
on replayed images.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from onpro import losses
from onpro.methods.base import Context
from onpro.methods.contrast import ContrastMethod, ContrastSettings
from onpro.methods.registry import register
from onpro.methods.teacher import Teacher


@dataclass(frozen=True)
class OCMSettings(ContrastSettings):
    """Settings of OCM."""


@register(
    "ocm",
    OCMSettings,
    title="Mutual information maximization",
    paper="Online Continual Learning through Mutual Information Maximization",
    year=2022,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="330 in the first task, then up to 2432, and 1088 of the previous network",
)
class OCM(ContrastMethod[OCMSettings]):
    """First task: L = CE(X) + L_n; later: L = CE(Xb) + L_n + L_u + L_prev + L_mse."""

    def __init__(self, settings: OCMSettings, context: Context) -> None:
        super().__init__(settings, context)
        # In train mode, as in the official code: it normalises by the batch it is shown.
        self.previous = Teacher(self.network, context, training=True)

    def learn_first_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The first task, without replay: contrast and cross-entropy of the new images."""
        views = torch.cat(self.rotated_views(new))
        of_views, features = self.encode_each(views, self.vary(new))
        return {
            "ins_new": self.instance_new(of_views, labels),
            "ce": cross_entropy(self.network.classifier(features), labels),
        }

    def learn_later_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Later tasks: contrast of both, cross-entropy and the previous network on replay only."""
        old, old_labels = self.draw(self.replay_size())
        new_views, replay_views = self.rotated_views(new), self.rotated_views(old)
        of_new, of_replay, features = self.encode_views(new_views, replay_views, self.vary(old))
        logits = self.network.classifier(features)
        return {
            "ins_new": self.instance_new(of_new, labels),
            "ins_replay": self.instance_replay(of_replay, old_labels),
            "previous": self.previous_contrast(replay_views[0], of_replay, old_labels),
            "ce": cross_entropy(logits, old_labels),
            "mse": self.previous_logits(old, logits),
        }

    def previous_contrast(self, rotated: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """L_prev: contrast of the raw rotated replay with what the previous network made of it."""
        self.progress.images += len(rotated)
        z = self.embed(features[: len(rotated)])
        z_before = normalize(self.previous.project(self.previous.features(rotated)))
        return losses.previous_instance_loss(
            z @ z_before.T, self.rotated_labels(labels), self.settings.instance_temperature
        )

    def previous_logits(self, images: Tensor, logits: Tensor) -> Tensor:
        """L_mse: logits of old classes, as those of the previous network on another augmentation.

        The two augmentations are independent draws, as in the official code.
        """
        self.progress.images += len(images)
        before = self.previous.classify(self.vary(images))
        return losses.known_logits_error(logits, before, self.previous.known)

    def end_task(self) -> None:
        """The network becomes the previous one."""
        self.previous.become(self.network, self.progress.seen)

    def forget(self, label: int) -> None:
        """Give a class up; the previous network no longer speaks for it."""
        super().forget(label)
        self.previous.forget(label, self.outputs_of(label))
