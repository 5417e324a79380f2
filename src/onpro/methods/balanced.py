"""A memory with equally many images of all classes, for any method with a reservoir.

After Chrysakis and Moens, "Online Continual Learning from Imbalanced Data", ICML 2020.
"""

from typing import Any

from onpro.memory import Memory
from onpro.memory.balanced import KEY, balanced
from onpro.memory.memory import FieldSpec
from onpro.methods.base import Method
from onpro.methods.registry import register_wrapper
from onpro.methods.settings import Settings
from onpro.methods.wrapper import Wrapper


@register_wrapper(
    "balanced",
    Settings,
    title="balanced memory",
    paper="Online Continual Learning from Imbalanced Data",
    year=2020,
    images_per_step="as many",
)
class Balanced(Wrapper[Settings]):
    """Keeps equally many random images of each class instead of a random sample of the stream."""

    keeps_loss = True
    memory_policy = staticmethod(balanced)

    @classmethod
    def refusal(cls, base: type[Method[Any]]) -> str | None:
        """Refuse methods that choose the images of their memory in a way of their own."""
        if not base.remembers:
            return "which chooses the images of its memory in its own way"
        return super().refusal(base)

    def make_memory(self, **fields: FieldSpec) -> Memory:
        """A memory that stores a key with each image."""
        return super().make_memory(key=KEY, **fields)
