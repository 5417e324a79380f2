"""ER, experience replay: train on the new batch and on a random batch of the memory.

Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.losses import feature_distance
from onpro.memory.reservoir import reservoir_batch
from onpro.methods.base import Context, total
from onpro.methods.registry import register
from onpro.methods.replay import ReplaySettings
from onpro.methods.rotated_head import RotatedHeadMethod
from onpro.methods.settings import require
from onpro.methods.teacher import Teacher
from onpro.streams import Batch


@dataclass(frozen=True)
class ERSettings(ReplaySettings):
    """Settings of ER."""

    distillation: float = 0.0
    """Weight of the distance between features and those of the network after the previous task
    (default from the paper: none; 10 in its Table A1)."""

    rotations: Literal[1, 4, 16] = 1
    """Rotated copies of each image, each a class of its own; 1 for the image alone (default from
    the paper; 16 in its Table A4)."""

    def check(self) -> None:
        """Refuse what cannot work."""
        super().check()
        require(self.distillation >= 0, "the weight of distillation must not be negative.")


@register(
    "er",
    ERSettings,
    title="Experience replay",
    paper="On Tiny Episodic Memories in Continual Learning",
    year=2019,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="74",
)
class ER(RotatedHeadMethod[ERSettings]):
    """L = CE(X) + CE(Xb): two means of two forwards, so 10 new images weigh as much as 64 old."""

    def __init__(self, settings: ERSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_rotated_network(settings.rotations)
        self.optimizer = settings.make_optimizer(self.network.parameters())
        self.memory = self.make_memory()
        self.teacher = Teacher(self.network, context) if settings.distillation else None

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One SGD step on the batch and a random replay batch, then the memory's update."""
        sets = {"new": self.varied(self.prepare(batch.images), batch.labels)}
        if len(self.memory):
            sets["replay"] = self.varied(*self.draw(self.settings.replay_batch))
        views = [images for images, _ in sets.values()]
        features = self.encode_each(*views)
        terms = {
            name: cross_entropy(self.network.classifier(f), labels)
            for (name, (_, labels)), f in zip(sets.items(), features, strict=True)
        }
        if self.teacher is not None and self.teacher.in_use:
            terms["distillation"] = self.distil(
                self.teacher, torch.cat(views), torch.cat(list(features))
            )
        self.descend(total(terms))
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def varied(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Augmented images, rotated where that is asked for, and the outputs they stand for."""
        images, outputs = self.rotated(images, labels)
        return self.vary(images), outputs

    def distil(self, teacher: Teacher, images: Tensor, features: Tensor) -> Tensor:
        """λ·‖f(x) − f_old(x)‖: one norm over all features of all images, not averaged."""
        self.progress.images += len(images)
        return self.settings.distillation * feature_distance(features, teacher.features(images))

    def end_task(self) -> None:
        """The network becomes the one to distil from."""
        if self.teacher is not None:
            self.teacher.become(self.network, self.progress.seen)
