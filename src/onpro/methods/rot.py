"""Rotated copies of each image as classes of their own: the paper's "-Rot" baselines (Table A4).

Class y in rotation q is output 16·y + q of a wider classifier, so that the outputs of a class do
not depend on the number of classes, and the classifier can grow.
"""

from dataclasses import dataclass
from typing import Any, Literal

from onpro.augment import check_rotation
from onpro.methods.base import Labelled, Method, Terms
from onpro.methods.parts.stored import StoresLogits
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper


@dataclass(frozen=True)
class RotSettings(Settings):
    """Settings of the rotated copies."""

    rotations: Literal[4, 16] = 16
    """Rotated copies of each training image, each a class of its own (default from the paper)."""


@register_wrapper(
    "rot",
    RotSettings,
    title="rotated copies as classes",
    paper="Online Prototype Learning for Online Continual Learning",
    year=2023,
    images_per_step="16 times as many",
)
class Rot(Wrapper[RotSettings]):
    """The terms of a method's loss on all rotations of its images; predicts by unrotated ones."""

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Refuse stored logits, and wrappers that take labels as classes."""
        if issubclass(base, StoresLogits):
            return "which stores the logits of images, one for each class"
        if issubclass(base, Wrapper) and base.sees_classes:
            return "which needs images as they are; wrap the method in rot first"
        return super().refusal(base)

    def make_network(self, **arguments: Any) -> Any:
        """A network with an output for each rotation of a class."""
        check_rotation(self.context.image_shape, self.settings.rotations)
        return super().make_network(outputs_per_class=self.settings.rotations, **arguments)

    def terms(self, *samples: Labelled) -> Terms:
        """The terms of the rotated images."""
        blocks = self.settings.rotations
        return super().terms(*(labelled.rotated(blocks) for labelled in samples))
