"""Several optimizer steps on the images of a step, each augmented anew.

After Zhang et al., "A Simple but Strong Baseline for Online Continual Learning: Repeated Augmented
Rehearsal", NeurIPS 2022, who also replay other images each time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onpro.methods.base import Method, Terms
from onpro.methods.parts.stored import StoresLogits
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper


@dataclass(frozen=True)
class RepeatSettings(Settings):
    """Settings of the repetition."""

    repeats: int = 4
    """Optimizer steps on each batch and its replay batch (ours)."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(1, "repeats")


@register_wrapper(
    "repeat",
    RepeatSettings,
    title="repeated steps",
    paper="A Simple but Strong Baseline for Online Continual Learning: Repeated Augmented "
    "Rehearsal",
    year=2022,
    images_per_step="4 times as many",
)
class Repeat(Wrapper[RepeatSettings]):
    """Descends the loss of a step several times: the same images, in other augmentations."""

    keeps_loss = True

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Refuse steps that are not one descent of one loss, and stored logits."""
        if not base.takes_added_terms:
            return "whose loss of new and replayed images is not computed at once"
        if issubclass(base, StoresLogits):
            return "which stores the logits of images before its step"
        return super().refusal(base)

    def descend(self, loss: Callable[[], Terms]) -> Terms:
        """Take the steps; return the terms before the last of them."""
        for _ in range(self.settings.repeats):
            terms = super().descend(loss)
        return terms
