"""DVC, dual view consistency: two views of an image agree, and replay is what changes most.

Gu et al., "Not Just Selection, but Exploration: Online Class-Incremental Continual Learning via
Dual View Consistency", CVPR 2022.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from onpro import losses
from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context
from onpro.methods.registry import register
from onpro.methods.replay import ReplaySettings
from onpro.methods.rotated_head import RotatedHeadMethod
from onpro.methods.settings import require
from onpro.methods.virtual_step import virtual_step
from onpro.nn import convolutions
from onpro.nn.joint_head import JointHead
from onpro.randomness import derive_seed
from onpro.streams import Batch

HIDDEN = 128
"""Size of the joint head's hidden layer, in paper and official code."""


@dataclass(frozen=True)
class DVCSettings(ReplaySettings):
    """Settings of DVC."""

    augmentation: str = "dvc+ocm"
    """How the second view of an image is varied, the first being the image itself: none, ocm,
    crop, scr, dvc, or several joined by + (default from the paper: DVC's own, one draw for the
    whole batch, then the one all methods have)."""

    candidates: int = 50
    """Number of random stored images among which those to replay are chosen; if they are no more
    than the replay batch, nothing is chosen and all are replayed (default from the paper)."""

    cross_entropy_weight: float = 1.0
    """Weight of the cross-entropy of both views (default from the paper)."""

    entropy_weight: float = 1.0
    """Weight of the entropy of a batch's predictions (default from the paper)."""

    agreement_weight: float = 2.0
    """Weight of the difference between the joint and each view's prediction (default from the
    paper for CIFAR-10)."""

    rotations: Literal[1, 4, 16] = 1
    """Rotated copies of each image, each a class of its own; 1 for the image alone (default from
    the paper; 16 in its Table A4)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        require(self.candidates >= 1, "the number of candidates must be at least 1.")
        weights = {
            "cross-entropy": self.cross_entropy_weight,
            "entropy": self.entropy_weight,
            "agreement": self.agreement_weight,
        }
        for name, value in weights.items():
            require(value >= 0, f"the weight of {name} must not be negative.")
        require(any(weights.values()), "one of the three weights must be above 0.")


@register(
    "dvc",
    DVCSettings,
    title="Dual view consistency",
    paper="Not Just Selection, but Exploration: Online Class-Incremental Continual Learning via "
    "Dual View Consistency",
    year=2022,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="120, and 200 without gradient",
)
class DVC(RotatedHeadMethod[DVCSettings]):
    """L = λ₁·CE + λ₂·L_ent + λ₃·L₁, of the new images and of replayed ones, each by itself."""

    def __init__(self, settings: DVCSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_rotated_network(settings.rotations)
        generator = torch.Generator().manual_seed(derive_seed(context.seed, "joint head"))
        outputs = self.network.classifier.out_features
        self.joint = JointHead(outputs, HIDDEN, generator=generator).to(context.device)
        self.optimizer = settings.make_optimizer(
            [*self.network.parameters(), *self.joint.parameters()]
        )
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on the batch and on what it changes most, then the memory's update."""
        new = self.prepare(batch.images)
        terms = {"new": self.loss(new, self.vary(new), batch.labels)}
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(terms["new"])
        if len(self.memory):
            old, labels = self.draw(self.settings.candidates)
            views = self.vary(old)  # replayed as they are judged
            chosen = self.most_changed(old, views, labels)
            terms["replay"] = self.loss(old[chosen], views[chosen], labels[chosen])
            self.backward(terms["replay"])
        self.step()
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def loss(self, images: Tensor, views: Tensor, labels: Tensor) -> Tensor:
        """The three parts on images and their second views, in one forward."""
        settings = self.settings
        images, outputs = self.rotated(images, labels)
        views, _ = self.rotated(views, labels)
        first, second = self.classify(torch.cat([images, views])).chunk(2)
        joint = self.joint(first, second)
        return (
            settings.cross_entropy_weight * losses.view_cross_entropy(first, second, outputs)
            + settings.entropy_weight * losses.marginal_entropy_loss(first, second, joint)
            + settings.agreement_weight * losses.agreement_loss(first, second, joint)
        )

    def most_changed(self, images: Tensor, views: Tensor, labels: Tensor) -> Tensor:
        """Up to `replay_batch` of the candidates, those whose gradient grows most by a step."""
        self.progress.images += 4 * len(images)
        both = torch.cat([images, views]).contiguous(memory_format=self.context.layout)
        scores = gradient_change(
            self.network.encoder,
            self.network.classifier,
            both,
            self.network.blocks * labels,
            self.settings.learning_rate,
            self.loss_scale,
        )
        return scores.argsort(descending=True, stable=True)[: self.settings.replay_batch]

    def grow(self, classes: int) -> None:
        """Widen the classifier and the joint head."""
        super().grow(classes)
        outputs = self.network.classifier.out_features
        self.joint.grow(outputs, generator=self.random["growth"], optimizer=self.optimizer)

    def forget(self, label: int) -> None:
        """Give a class up, in the joint head too."""
        super().forget(label)
        for output in self.outputs_of(label):
            self.joint.renew(output, generator=self.random["growth"], optimizer=self.optimizer)


@torch.no_grad()
@convolutions("ieee")
def gradient_change(
    encoder: nn.Module,
    classifier: nn.Module,
    views: Tensor,
    labels: Tensor,
    learning_rate: float,
    loss_scale: Tensor | float = 1.0,
) -> Tensor:
    """MGI: how much a virtual step raises the magnitude of each image's gradient, (n,).

    Both views go through the network together, in train mode: each pass normalises by their own
    statistics, the first moves the running statistics of the network, the second only copies of
    them. The first view alone is judged, in float32.

    Args:
        encoder: images to features; its parameters hold the gradients of the new batch.
        classifier: features to logits, likewise.
        views: (2n, 3, height, width) network input, first views, then second views.
        labels: (n,) outputs of the classifier.
        learning_rate: of the virtual step, a plain one of SGD.
        loss_scale: what the loss was multiplied by before its backward pass.
    """
    stepped_encoder = virtual_step(encoder, learning_rate, loss_scale)
    stepped_classifier = virtual_step(classifier, learning_rate, loss_scale)
    now = encoder(views)[: len(labels)]
    then = stepped_encoder(views)[: len(labels)]
    return losses.gradient_magnitude(
        stepped_classifier(then), then, labels
    ) - losses.gradient_magnitude(classifier(now), now, labels)
