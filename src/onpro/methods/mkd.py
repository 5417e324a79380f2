"""MKD, momentum knowledge distillation: a moving average of the network teaches it.

Michel et al., ICML 2024. The average forgets more slowly than the network, which learns from it on
augmented and on raw images; predictions are those of the mean of both.
"""

from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from onpro import augment
from onpro.losses import softened_divergence
from onpro.methods.base import Context, Labelled, Method, Terms
from onpro.methods.parts import apf
from onpro.methods.parts.added import AddedLoss
from onpro.methods.parts.apf import Mixture
from onpro.methods.parts.momentum import MomentumTaught, TeacherSettings
from onpro.methods.parts.rotations import scores_of_rotations
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import require
from onpro.recipes import FEW_PIXELS, GSA_PORT_OF_MKD, SHORT_STREAMS, on


@dataclass(frozen=True)
class MKDSettings(TeacherSettings):
    """Settings of the moving average, and of the loss that is added."""

    teacher_augmentation: str = "scr"
    """How the images that the average sees are augmented, see augmentation (default from the
    official code)."""

    taught_rivals: Literal["all", "task", "batch", "none", "shown"] = "all"
    """Classes that new images compete with in the added cross-entropy. all: all of them (default
    from the paper); task: those of the current task; batch: those of the batch and those not seen
    yet; none: only replayed images learn their labels; shown: all images compete with all classes,
    each as much as a step shows it (the last four are ours)."""

    taught_rotations: Literal[1, 4, 16] = 1
    """Rotations in which the added loss shows images, each a class of its own (default from the
    paper: images as they are)."""

    predict_from: Literal["image", "rotations"] = "image"
    """What of an image is seen to predict its class: the image itself (default from the paper) or
    all rotations that are taught."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        augment.parts_of(self.teacher_augmentation)


@register_wrapper(
    "mkd",
    MKDSettings,
    title="momentum distillation",
    paper="Rethinking Momentum Knowledge Distillation in Online Continual Learning",
    year=2024,
    inference="linear head, mean of the network's weights and their moving average",
    images_per_step="148 more, and 74 through the average",
    bases={
        "er": {"optimizer": "adam", "learning_rate": 5e-4},
        "derpp": {
            "optimizer": "adam",
            "learning_rate": 1e-4,
            "logit_weight": 0.2,
            "label_weight": 1.0,
        },
        "gsa": GSA_PORT_OF_MKD,
    },
    # A faster average, and less of it, where there are some hundred steps (ours).
    data=on(SHORT_STREAMS, teacher_rate=0.1, teacher_weight=2.0),
    # No shifts of images of few pixels (ours).
    bases_on={
        **{
            (name, data): {"learning_rate": 5e-3}
            for name in ("er", "derpp")
            for data in SHORT_STREAMS
        },
        **{("gsa", data): {"augmentation": "gsa"} for data in FEW_PIXELS},
    },
)
class MKD(MomentumTaught[MKDSettings], AddedLoss[MKDSettings]):
    """L + CE(S(V̂)) + λ·½[KL(T(V̂)→S(V̂)) + KL(T(V̂)→S(V))], V = [Xb; X], V̂ augmented.

    Of a method that is nothing but cross-entropy, L is left out: CE(S(V̂)) takes its place. V may be
    shown in several rotations, each a class of its own; L itself uses images as they are.
    """

    def __init__(self, settings: MKDSettings, context: Context) -> None:
        super().__init__(settings, context)
        if settings.predict_from == "rotations":
            require(
                settings.taught_rotations > 1,
                "there are no rotations to predict from: set the taught rotations to 4 or 16.",
            )
            require(
                getattr(super().eval_scores, "__func__", None) is Method.eval_scores,
                "mirror images can be predicted from all rotations if mirror comes after mkd, as "
                "in er-mkd-mirror.",
            )
        self.learns_new_by_replay_only &= settings.taught_rivals == "none"
        self.start_average()
        self.harder = augment.build(
            settings.teacher_augmentation, context.normalise, fused=context.fused
        )

    def make_network(self, **arguments: Any) -> Any:
        """A network with an output for each rotation of a class that is taught."""
        blocks = self.settings.taught_rotations
        if blocks == 1:
            return super().make_network(**arguments)
        require(
            super().has_plain_loss or self.replays_later,
            "rotations can be taught around er, gss, ocm and onpro alone, whose own losses do "
            "without them: set the taught rotations to 1.",
        )
        augment.check_rotation(self.context.image_shape, blocks)
        return super().make_network(outputs_per_class=blocks, **arguments)

    def terms(self, *samples: Any) -> Terms:
        """The terms of the method; of nothing but cross-entropy, those that take its place."""
        return self.taught_terms(*samples) if super().has_plain_loss else super().terms(*samples)

    def added_terms(self, new: Labelled, old: Labelled | None = None, *mixed: Any) -> Terms:
        """Cross-entropy and distillation, unless they have taken the place of the method's loss."""
        old = self.replayed(old)
        added = super().added_terms(new, old, *mixed)
        return added if super().has_plain_loss else added | self.taught_terms(new, old)

    def taught_terms(self, new: Labelled, old: Labelled) -> Terms:
        """Cross-entropy and distillation of new and replayed images, which are not mixed."""
        shown = self.shown(new, old)
        if shown is None:
            return {}
        blocks, rivals = self.settings.taught_rotations, self.settings.taught_rivals
        shown = self.turned(shown, len(new.labels))
        views = self.harder(shown.images, self.random["augmentation"])
        taught = self.taught_outputs(self.momentum_teacher.logits(views))
        logits, of_raw = map(self.taught_outputs, self.network.logits_each(views, shown.images))
        distilled = softened_divergence(logits, taught) + softened_divergence(of_raw, taught)
        return {
            "taught_ce": self.label_loss(logits, shown, blocks * len(new.labels), rivals),
            "taught_kl": self.settings.teacher_weight / 2 * distilled,
        }

    def turned(self, shown: Mixture, new: int) -> Mixture:
        """Unmixed images in all rotations that are taught, the first `new` before the others."""
        blocks, sizes = self.settings.taught_rotations, [new, len(shown.first) - new]
        if blocks == 1:
            return shown
        parts = zip(shown.images.split(sizes), shown.first.split(sizes), strict=True)
        of_new, of_old = (Labelled(*part).rotated(blocks) for part in parts)
        return apf.unmixed(*of_new.then(of_old))

    def taught_outputs(self, outputs: Tensor) -> Tensor:
        """The outputs that are taught: of all rotations, or of images as they are."""
        return outputs if self.settings.taught_rotations > 1 else self.network.upright(outputs)

    def eval_scores(self, images: Tensor) -> Tensor:
        """The scores of the method, or the mean of those of all rotations that are taught."""
        if self.settings.predict_from == "image":
            return super().eval_scores(images)
        return scores_of_rotations(self.predictor, images)
