"""DVC, dual view consistency: two views of an image agree, and replay is what changes most.

Gu et al., "Not Just Selection, but Exploration: Online Class-Incremental Continual Learning via
Dual View Consistency", CVPR 2022.
"""

from collections.abc import Hashable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from onpro import losses
from onpro.methods.base import Context, Labelled, Method, Terms, total
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings, require
from onpro.nn.counter import count_images
from onpro.nn.gradients import virtual_step
from onpro.nn.joint_head import JointHead
from onpro.randomness import derive_seed
from onpro.recipes import FRAMEWORK, IMAGENET, MANY_CLASSES, PAPER, Recipe, on
from onpro.streams import Batch

HIDDEN = 128
"""Size of the joint head's hidden layer, in paper and official code."""


@dataclass(frozen=True)
class DVCSettings(ReplaySettings):
    """Settings of DVC."""

    augmentation: str = "dvc+ocm"
    """How the second view of an image is augmented, the first being the image itself: none, ocm,
    crop, scr, dvc, gsa, mose, or several joined by + (default from the paper: DVC's own, sampled
    once for the whole batch, then the one all methods have)."""

    candidates: int = 50
    """Number of random stored images among which those to replay are chosen; if they are no more
    than the replay batch, all of them are replayed (default from the paper)."""

    cross_entropy_weight: float = 1.0
    """Weight of the cross-entropy of both views (default from the paper)."""

    entropy_weight: float = 1.0
    """Weight of the entropy of a batch's predictions (default from the paper)."""

    agreement_weight: float = 2.0
    """Weight of the difference between the joint and each view's prediction (default from the
    paper for CIFAR-10)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        weights = ("cross_entropy_weight", "entropy_weight", "agreement_weight")
        self.require_at_least(1, "candidates")
        self.require_at_least(0, *weights)
        require(any(getattr(self, name) for name in weights), "one of the weights must be above 0.")


@register(
    "dvc",
    DVCSettings,
    title="Dual view consistency",
    paper="Not Just Selection, but Exploration: Online Class-Incremental Continual Learning via "
    "Dual View Consistency",
    year=2022,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="120, and 100 without gradient",
    data={
        "cifar10": {"agreement_weight": 2.0},
        **on(MANY_CLASSES, agreement_weight=4.0),
        **on(IMAGENET, augmentation="ocm", agreement_weight=4.0),
    },
    recipes={
        "paper": PAPER,
        "original": FRAMEWORK.varied("its own code's numbers", augmentation="dvc"),
        "selective": Recipe(
            "twice as many candidates as are replayed, so that there is a choice",
            {"candidates": 128},
        ),
    },
)
class DVC(Method[DVCSettings]):
    """L = λ₁·CE + λ₂·L_ent + λ₃·L₁, of the new images and of replayed ones, each by itself."""

    remembers = True

    def __init__(self, settings: DVCSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        generator = torch.Generator().manual_seed(derive_seed(context.seed, "joint head"))
        outputs: int = self.network.classifier.out_features
        self.joint = JointHead(outputs, HIDDEN, generator=generator).to(context.device)
        self.optimizer = settings.make_optimizer(
            [*self.network.parameters(), *self.joint.parameters()]
        )
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """One optimizer step on the batch and what it changes most, then the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        terms = {"new": total(self.terms(new, new._replace(images=self.augment(new.images))))}
        self.optimizer.zero_grad(set_to_none=True)
        self.backward(terms)
        if not self.memory.is_empty:
            old, labels = self.sample_replay(self.settings.candidates)
            views = self.augment(old)  # replayed as they are judged
            chosen = self.most_changed(old, views, labels)
            replay = Labelled(old[chosen], labels[chosen])
            terms["replay"] = total(self.terms(replay, replay._replace(images=views[chosen])))
            self.backward({"replay": terms["replay"]})
        self.step()
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, first: Labelled, second: Labelled) -> Terms:
        """The three terms on two views of the same images, in one forward pass."""
        settings, labels = self.settings, first.labels
        images = torch.cat([first.images, second.images])
        of_first, of_second = self.network.logits(images).chunk(2)
        joint = self.joint(of_first, of_second)
        ce = losses.view_cross_entropy(of_first, of_second, labels)
        entropy = losses.marginal_entropy_loss(of_first, of_second, joint)
        agreement = losses.agreement_loss(of_first, of_second, joint)
        return {
            "ce": settings.cross_entropy_weight * ce,
            "entropy": settings.entropy_weight * entropy,
            "agreement": settings.agreement_weight * agreement,
        }

    def most_changed(self, images: Tensor, views: Tensor, labels: Tensor) -> Tensor:
        """Up to `replay_batch` of the candidates, those whose gradient grows most by a step.

        If these are all of them, the first pass over them only moves the running statistics.
        """
        both = torch.cat([images, views]).contiguous(memory_format=torch.channels_last)
        if len(labels) <= self.settings.replay_batch:
            count_images(len(both))
            with torch.no_grad():
                self.network.encoder(both)
            return torch.arange(len(labels), device=labels.device)
        count_images(2 * len(both))
        scores = gradient_change(
            self.network.encoder,
            self.network.classifier,
            both,
            labels * self.network.outputs_per_class,
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
        """Drop a class, in the joint head too."""
        super().forget(label)
        for output in self.network.outputs_of(label):
            self.joint.renew(output, generator=self.random["growth"], optimizer=self.optimizer)


@torch.no_grad()
def gradient_change(
    encoder: nn.Module,
    classifier: nn.Module,
    views: Tensor,
    labels: Tensor,
    learning_rate: float,
    loss_scale: Tensor,
) -> Tensor:
    """MGI: how much a virtual step raises the magnitude of each image's gradient, (n,).

    Both views go through the network together, in train mode: each pass normalises by their own
    statistics, the first moves the running statistics of the network, the second only copies of
    them. The first view alone is judged, in float32 or TF32.

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
