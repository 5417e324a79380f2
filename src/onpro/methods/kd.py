"""Distillation of features from the network before the current task: "ER with KD" (Table A1)."""

from dataclasses import dataclass

import torch

from onpro.losses import feature_distance
from onpro.methods.base import Context, Labelled, Terms
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper
from onpro.nn.teacher import Teacher


@dataclass(frozen=True)
class KDSettings(Settings):
    """Settings of the distillation."""

    distillation: float = 10.0
    """Weight of the distance between features and those of the network after the previous task
    (default from the paper)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "distillation")


@register_wrapper(
    "kd",
    KDSettings,
    title="distillation of features",
    paper="Online Prototype Learning for Online Continual Learning",
    year=2023,
    images_per_step="as many, and once more through the previous network",
)
class KD(Wrapper[KDSettings]):
    """L + λ·‖f(x) − f_old(x)‖: one norm over all features of the images that terms are taken of."""

    def __init__(self, settings: KDSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.teacher = Teacher(self.network)

    def terms(self, *samples: Labelled) -> Terms:
        """The terms of the method, and the distance of its features from the teacher's."""
        with self.network.watched() as passes:
            terms = super().terms(*samples)
        if self.teacher.in_use and passes:
            images, features = (torch.cat(parts) for parts in zip(*passes, strict=True))
            distance = feature_distance(features, self.teacher.features(images))
            terms["distillation"] = self.settings.distillation * distance
        return terms

    def end_task(self) -> None:
        """The network becomes the teacher."""
        super().end_task()
        self.teacher.become(self.network, self.progress.seen)

    def forget(self, label: int) -> None:
        """Drop a class, also from the teacher."""
        super().forget(label)
        self.teacher.forget(label, self.network.outputs_of(label))
