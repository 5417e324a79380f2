"""Relay: what a network learns is handed to its slow average, which hands it back.

Ours. It joins parts of methods that came after OnPro: MKD's moving average, rotations as classes, a
balanced memory and, on CIFAR-10, new images that compete with the classes of their task alone.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.augment import check_rotation
from onpro.losses import MASKED_LOGIT, softened_divergence, supervised_contrast
from onpro.memory.balanced import KEY, balanced
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.parts.known import KnownClasses, MeetsClasses, outputs_of
from onpro.methods.parts.momentum import MomentumTaught, TeacherSettings
from onpro.methods.parts.rotations import scores_of_rotations
from onpro.methods.parts.shown import log_expected_counts
from onpro.methods.registry import register
from onpro.methods.settings import ReplaySettings
from onpro.recipes import FEW_PIXELS, IMAGENET, SHORT_STREAMS, Recipe, on
from onpro.streams import Batch

PROJECTION = 128
"""Dimension of what is contrasted, as in OCM and OnPro."""

TEMPERATURE = 0.1
"""Of the contrast."""


@dataclass(frozen=True)
class RelaySettings(TeacherSettings, ReplaySettings):
    """Settings of Relay."""

    optimizer: Literal["sgd", "adam", "adamw"] = "adam"
    """What takes the steps: adam (default from the official code of MKD),
    adamw or sgd."""

    learning_rate: float = 5e-4
    """Length of the optimizer's steps (default from the official code of MKD, for Adam)."""

    weight_decay: float = 0.0
    """Weight decay, added to the gradient (adamw: to the step) (default from the official code of
    MKD)."""

    augmentation: str = "scr"
    """How the view of an image is made: none, ocm, crop, scr, dvc, gsa, mose, or several joined
    by + (default from the official code of MKD)."""

    rotations: Literal[1, 4, 16] = 4
    """Rotations in which each image is shown, each a class of its own (default ours)."""

    repeats: int = 1
    """Optimizer steps on each batch and its replay batch, each on other views (default ours)."""

    rivals: Literal["all", "current", "task", "shown"] = "all"
    """Classes that images compete with for labels. all: with all classes alike; current: new images
    with those of their task, replayed ones with all, as with the rivals "task" of wrappers; task:
    as current, but each class competes with replayed images as much as it is stored; shown: all
    images with all classes, each as much as a step shows it (default ours)."""

    contrast_weight: float = 0.0
    """Weight of a supervised contrast of all images and their views, in which each rotation of a
    class is a class of its own; 0: none (default ours)."""

    keeps: Literal["balanced", "reservoir"] = "balanced"
    """What the memory keeps: equally many images of each class, or a random sample of the stream
    (default ours)."""

    predict_from: Literal["all", "mirrored", "image"] = "all"
    """What of an image is seen to predict its class: all rotations of the image and its mirror
    image, both unrotated, or the image alone (default ours)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(1, "repeats")
        self.require_at_least(0, "contrast_weight")


@register(
    "relay",
    RelaySettings,
    title="Relay",
    paper="onpro: online class-incremental learning",
    year=2026,
    memory="images, balanced classes or batch reservoir",
    inference="linear head",
    images_per_step="592, and 296 through the average",
    data={
        **IMAGENET,
        # Tasks are long and have few classes, so that new ones would win against old ones (ours).
        "cifar10": {"rivals": "current", "keeps": "reservoir"},
        # A faster average, more steps, easier images where there are some hundred batches (ours).
        **on(
            {**on(SHORT_STREAMS), **on(FEW_PIXELS, augmentation="ocm")},
            learning_rate=5e-3,
            teacher_rate=0.1,
            teacher_weight=2.0,
            rotations=1,
            repeats=4,
            rivals="shown",
        ),
    },
    recipes={
        "many-stored": Recipe(
            "for compressed memories on CIFAR-10", {"rivals": "all", "keeps": "balanced"}
        ),
        "without-teacher": Recipe(
            "no average teaches or predicts", {"teacher_weight": 0.0, "predict_with": "student"}
        ),
        "without-rotations": Recipe("no rotations", {"rotations": 1}),
        "without-rivals": Recipe("classes compete alike", {"rivals": "all"}),
        "without-balance": Recipe("a random sample of the stream is kept", {"keeps": "reservoir"}),
        "without-views": Recipe("predicts from the image alone", {"predict_from": "image"}),
    },
)
class Relay(MomentumTaught[RelaySettings], MeetsClasses[RelaySettings]):
    """L = CE(S(x̂) + r) + λ·½[KL(T(x̂)→S(x̂)) + KL(T(x̂)→S(x))].

    x are new and replayed images in all rotations, x̂ is an augmented view of them. T is the moving
    average of the network S, and r decides which classes compete.
    """

    def __init__(self, settings: RelaySettings, context: Context) -> None:
        super().__init__(settings, context)
        check_rotation(context.image_shape, settings.rotations)
        self.network = self.make_network(
            outputs_per_class=settings.rotations,
            projection=PROJECTION if settings.contrast_weight else 0,
        )
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.start_average()
        self.known = KnownClasses(self.network.classes, context.device)
        if settings.keeps == "balanced":
            self.memory_policy, self.memory = balanced, self.make_memory(key=KEY)
        else:
            self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        """Optimizer steps on the batch and a random replay batch, then the memory update."""
        self.known.meet(batch.labels)
        new = Labelled(self.normalise(batch.images), batch.labels)
        old = self.sample_replay(self.settings.replay_batch)
        for _ in range(self.settings.repeats):
            terms = self.descend(lambda: self.terms(new, old))
        self.remember(batch)
        return terms

    def course(self) -> Hashable:
        """The same in every task."""
        return ()

    def terms(self, new: Labelled, old: Labelled) -> Terms:
        """Cross-entropy of the view, and distillation from what the average makes of it."""
        if not len(old.labels):  # nothing is stored yet
            return {}
        shown = new.then(old).rotated(self.settings.rotations)
        view = self.augment(shown.images)
        taught = self.momentum_teacher.logits(view)
        features = self.network.features_each(shown.images, view)
        of_image, of_view = map(self.network.classifier, features)
        distilled = softened_divergence(of_image, taught) + softened_divergence(of_view, taught)
        terms = {
            "ce": cross_entropy(of_view + self.raised(new, old), shown.labels),
            "taught": self.settings.teacher_weight / 2 * distilled,
        }
        if weight := self.settings.contrast_weight:
            z = self.network.embed(torch.cat([*features]))
            contrast = supervised_contrast(z @ z.T, shown.labels.repeat(2), TEMPERATURE)
            terms["contrast"] = weight * contrast.mean()
        return terms

    def raised(self, new: Labelled, old: Labelled) -> Tensor:
        """r: what is added to logits (n, outputs) to learn labels from them."""
        rivals, current = self.settings.rivals, self.known.current
        of_new = of_old = torch.zeros(len(current), device=current.device)
        if rivals in ("task", "shown"):
            counted = new.labels if rivals == "shown" else new.labels[:0]
            of_old = log_expected_counts(self.memory, counted, len(old.labels), len(current))
            of_new = of_old
        if rivals in ("task", "current"):
            of_new = torch.where(outputs_of(current, 1, new.labels), 0.0, MASKED_LOGIT)
        rows = [of_new.expand(len(new.labels), -1), of_old.expand(len(old.labels), -1)]
        blocks = self.settings.rotations
        return torch.cat(rows).repeat_interleave(blocks, dim=1).repeat(blocks, 1)

    def eval_scores(self, images: Tensor) -> Tensor:
        """The mean of the scores of an image, of its mirror image and of their rotations."""
        seen, network = self.settings.predict_from, self.predictor
        faces = [images] if seen == "image" else [images, images.flip(-1)]
        if seen == "all":
            scores = [scores_of_rotations(network, face) for face in faces]
        else:
            scores = [network(face) for face in faces]
        return torch.stack(scores).mean(dim=0)
