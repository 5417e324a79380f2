"""OnPro, online prototype learning.

Wei et al., "Online Prototype Learning for Online Continual Learning", ICCV 2023. The defaults
follow the official code, which produced the paper's numbers; where the paper's text differs, a
setting offers its reading too.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from onpro import losses
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.parts import apf
from onpro.methods.parts.apf import Mixture
from onpro.methods.parts.contrast import ContrastSettings, RotationContrast
from onpro.methods.registry import register
from onpro.methods.settings import MIN_TEMPERATURE, require
from onpro.recipes import IMAGENET, MANY_CLASSES, PAPER, SHORT_STREAMS, Recipe, on
from onpro.streams import Batch

InstanceLoss = Callable[[Tensor, Tensor, float], Tensor]


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
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(MIN_TEMPERATURE, "prototype_temperature")
        self.require_above(0, "feedback_mixup_beta")
        self.require_between(0, 1, "feedback", "mixup_probability", "random_mixup_highest")
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
    data={
        "cifar10": {"feedback": 0.25, "mixup_probability": 0.6, "similarity_scale": 0.5},
        # Paper and official code; on ImageNet, rotations are off (our reading).
        **on(MANY_CLASSES, feedback=0.10, mixup_probability=0.2, similarity_scale=1.0),
        **on(IMAGENET, feedback=0.10, mixup_probability=0.2, similarity_scale=1.0, rotations=1),
        # Some hundred steps on a CPU (ours).
        **on(SHORT_STREAMS, projection=64, learning_rate=5e-3),
        "tiny": {"projection": 64, "learning_rate": 5e-3, "rotations": 4},
    },
    recipes={
        "paper": PAPER,
        "baseline": Recipe(
            "Table 3: neither prototypes nor mixup",
            {"new_prototypes": False, "seen_prototypes": False, "mixup": False},
        ),
        "without-ope": Recipe(
            "Table 3: no contrast between prototypes",
            {"new_prototypes": False, "seen_prototypes": False},
        ),
        "without-apf": Recipe("Table 3: no mixup, so no feedback", {"mixup": False}),
        "without-new": Recipe("Table 3: no new prototypes", {"new_prototypes": False}),
        "without-seen": Recipe("Table 3: no replay prototypes", {"seen_prototypes": False}),
        "seen-without-new": Recipe(
            "Table 3: replay prototypes of earlier tasks only", {"seen_without_new": True}
        ),
        "random-mixup": Recipe("Table 4: mixup without feedback", {"feedback": 0.0}),
        "ce-both": Recipe(
            "Table A3: one cross-entropy of new and replay", {"cross_entropy": "both"}
        ),
        "ce-separate": Recipe(
            "Table A3: a cross-entropy of new, another of replay", {"cross_entropy": "separate"}
        ),
        **{
            f"alpha-{share:g}": Recipe(
                f"Table A5: share of feedback {share:g}", {"feedback": share}
            )
            for share in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9)
        },
        "without-projector": Recipe("Table A6: no projection", {"projection": 0}),
        "without-rotation": Recipe("Figure A4: no rotated copies", {"rotations": 1}),
        "paper-text": Recipe(
            "the paper's text to the letter, where the official code differs",
            {
                "pair_kernel": "gaussian",
                "pair_rounding": "plain",
                "instance_loss": "supcon",
                "views": "augmented",
                "replay_per_class": 0,
                "betas": (0.9, 0.999),
            },
        ),
    },
)
class OnPro(Method[OnProSettings]):
    """L = L_OPE + L_INS + L_CE (Algorithm 1).

    Three forward passes in train mode stay three: batch-norm statistics follow each of them, and
    evaluation relies on them.
    """

    remembers = True
    takes_added_terms = True
    replays_later = True

    def __init__(self, settings: OnProSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network(projection=settings.projection)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.contrast = RotationContrast(settings, context, self.network, self.random)
        self.learns_new_by_replay_only = settings.cross_entropy == "replay"
        self.is_capturable = settings.pair_rounding == "exact"  # else it waits for the device
        classes: int = self.network.classes
        device = context.device
        dimension = settings.projection or self.network.encoder.out_features
        self.prototypes = torch.zeros(classes, dimension, device=device)
        """Q: replay prototypes of the last step, a zero row for each absent class."""
        self.old_classes = torch.zeros(classes, dtype=torch.bool, device=device)
        """(classes,): the classes met before the current task."""

    def learn(self, batch: Batch) -> Terms:
        """Algorithm 1: replay, mixed by APF; one optimizer step; the memory update."""
        new = Labelled(self.normalise(batch.images), batch.labels)
        old = self.sample_replay(self.replay_count)
        mixed = self.mixed_replay(old)
        terms = self.descend(
            lambda: self.terms(new, old, mixed) | self.added_terms(new, old, mixed)
        )
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """Whether it is the first task, the size of the replay batch, and whether it is mixed."""
        return self.progress.task == 0, self.replay_count, self.mixes

    @property
    def replay_count(self) -> int:
        """Number of images to replay; in the first task they only give prototypes."""
        if self.progress.task == 0:
            return self.settings.replay_batch if self.uses_replay_prototypes else 0
        return self.settings.replay_size(len(self.progress.seen))

    def terms(self, new: Labelled, old: Labelled, mixed: Mixture) -> Terms:
        """The terms of the loss.

        Args:
            new: X, the batch.
            old: Xo, the replay batch.
            mixed: X̃, what APF made of it.
        """
        if self.progress.task == 0:
            return self.first_task_terms(new, old)
        return self.later_task_terms(new, old, mixed)

    def first_task_terms(self, new: Labelled, old: Labelled) -> Terms:
        """L_CE and L_INS of new images; L_OPE of new and, once there is any, of replay."""
        batches = [self.two_views(self.contrast.rotate(new.images))]
        if len(old.labels):
            batches.append(self.two_views(old.images))
        batches.append(self.augment(new.images))
        h_new, *h_old, h_ce = self.network.features_each(*batches)
        return {
            "ins_new": self.ins(losses.new_instance_loss, h_new, new.labels),
            **(self.ope_seen(h_old[0], old.labels) if h_old else {}),
            **self.ope_new(h_new, new.labels),
            "ce": cross_entropy(self.network.classify(h_ce), new.labels),
        }

    def later_task_terms(self, new: Labelled, old: Labelled, mixed: Mixture) -> Terms:
        """L_INS of new and mixed images, L_CE of mixed ones, L_OPE of new and of unmixed replay."""
        views_new = self.two_views(self.contrast.rotate(new.images))
        views_mixed = self.two_views(self.contrast.rotate(mixed.images))
        classified = self.classified(new, mixed)
        batches = [torch.cat([views_new, views_mixed]), self.augment(classified.images)]
        if self.uses_replay_prototypes:
            batches.append(self.two_views(old.images))
        h, h_ce, *h_old = self.network.features_each(*batches)
        h_new, h_mixed = h.split([len(views_new), len(views_mixed)])
        return {
            "ins_new": self.ins(losses.new_instance_loss, h_new, new.labels),
            "ins_replay": self.ins(losses.replay_instance_loss, h_mixed, mixed.labels),
            "ce": self.ce(h_ce, classified, len(new.labels)),
            **(self.ope_seen(h_old[0], old.labels) if h_old else {}),
            **self.ope_new(h_new, new.labels),
        }

    # Adaptive prototypical feedback (APF)

    @property
    def mixes(self) -> bool:
        """Whether the replay batch of this step is mixed."""
        progress = self.progress
        return self.settings.mixup and progress.task != 0 and progress.steps_in_task > 0

    def mixed_replay(self, old: Labelled) -> Mixture:
        """X̃: a share α of the replay batch mixes classes that are confused, the rest random ones.

        The first task mixes nothing, nor does the first step of a later one, whose prototypes are
        those of another task.
        """
        settings, generator, count = self.settings, self.random["mixup"], len(old.labels)
        if not self.mixes:
            return apf.unmixed(*old)
        base = int(count * round(1 - settings.feedback, 9))  # 1 − 0.9 is a bit below 0.1
        kept = torch.randperm(count, generator=generator, device=old.labels.device)[:base]
        mixed = apf.mix_randomly(
            old.images[kept],
            old.labels[kept],
            probability=settings.mixup_probability,
            highest=settings.random_mixup_highest,
            generator=generator,
        )
        if base < count:
            confused = apf.mix_confused(
                self.memory,
                self.normalise,
                self.prototypes,
                count - base,
                kernel=settings.pair_kernel,
                rounding=settings.pair_rounding,
                probability=settings.mixup_probability,
                concentration=settings.feedback_mixup_beta,
                generator=generator,
            )
            mixed = mixed.then(confused)
        # With plain rounding there may be no mixed image; then the replay batch stays unmixed.
        return mixed if len(mixed.first) else apf.unmixed(*old)

    # Online prototype equilibrium (OPE)

    def ope_new(self, features: Tensor, labels: Tensor) -> Terms:
        """L_new: contrast between prototypes of the unrotated new images, block 0 of each view."""
        settings = self.settings
        if not settings.new_prototypes:
            return {}
        first, second = (view[: len(labels)] for view in self.network.embed(features).chunk(2))
        classes, temperature = self.network.classes, settings.prototype_temperature
        loss, *_ = losses.prototype_contrast(first, second, labels, classes, temperature)
        return {"ope_new": loss}

    def ope_seen(self, features: Tensor, labels: Tensor) -> Terms:
        """L_seen: contrast between the prototypes of two views of replay; they become Q."""
        settings = self.settings
        features = features if settings.seen_prototypes else features.detach()
        first, second = self.network.embed(features).chunk(2)
        classes, temperature = self.network.classes, settings.prototype_temperature
        loss, *means = losses.prototype_contrast(first, second, labels, classes, temperature)
        self.prototypes = torch.stack(means).mean(dim=0).detach()
        if not settings.seen_prototypes:
            return {}
        if settings.seen_without_new:
            old = labels.where(self.old_classes[labels], losses.NO_CLASS)
            loss, *_ = losses.prototype_contrast(first, second, old, classes, temperature)
        return {"ope_seen": loss}

    @property
    def uses_replay_prototypes(self) -> bool:
        """Whether anything depends on the prototypes of replay."""
        return self.settings.seen_prototypes or self.settings.mixup

    # Instance contrast (INS) and cross-entropy (CE)

    def two_views(self, images: Tensor) -> Tensor:
        """The images, or augmented ones in the paper's reading, followed by augmented ones."""
        first = images if self.settings.views == "raw" else self.augment(images)
        return torch.cat([first, self.augment(images)])

    def ins(self, form: InstanceLoss, features: Tensor, labels: Tensor) -> Tensor:
        """L_INS: contrast between images of equal class and equal rotation."""
        if self.settings.instance_loss == "supcon":
            form = summed_supcon
        return self.contrast.loss(form, features, labels, first_task=self.progress.task == 0)

    def classified(self, new: Labelled, mixed: Mixture) -> Mixture:
        """The images of the cross-entropy: mixed replay, after the new ones where asked for."""
        if self.settings.cross_entropy == "replay":
            return mixed
        return apf.unmixed(*new).then(mixed)

    def ce(self, features: Tensor, images: Mixture, new: int) -> Tensor:
        """L_CE of features of mixed images, the first of which may be new."""
        logits = self.network.classify(features)
        if self.settings.cross_entropy != "separate":
            return losses.mixup_cross_entropy(logits, images.first, images.second, images.weight)
        of_new, of_replay = torch.split(logits, [new, len(logits) - new])
        return cross_entropy(of_new, images.first[:new]) + losses.mixup_cross_entropy(
            of_replay, images.first[new:], images.second[new:], images.weight[new:]
        )

    # Tasks and classes

    def start_task(self) -> None:
        """Note the classes of earlier tasks."""
        old = [label in self.progress.seen_before_task for label in range(self.network.classes)]
        self.old_classes = torch.tensor(old).to(self.context.device, non_blocking=True)

    def grow(self, classes: int) -> None:
        """Widen the classifier and the tables of classes."""
        super().grow(classes)
        missing = self.network.classes - len(self.prototypes)
        self.prototypes = pad(self.prototypes, (0, 0, 0, missing))
        self.old_classes = pad(self.old_classes, (0, missing))

    def forget(self, label: int) -> None:
        """Drop a class, also its prototype."""
        super().forget(label)
        self.prototypes[label] = 0


def summed_supcon(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """SupCon summed over the images of both views, as in the paper's text."""
    return losses.supervised_contrast(similarity, labels.repeat(2), temperature).sum()
