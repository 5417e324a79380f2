"""Base class of methods that store logits with images."""

from collections.abc import Mapping
from typing import Any

import torch

from onpro.memory import Memory
from onpro.memory.memory import FieldSpec
from onpro.methods.base import Method, S


class StoresLogits(Method[S]):
    """A method that stores the network's logits of each image in the field `logits`.

    Wrappers that need other logits than one for each class, or of another moment, refuse it.
    """

    def make_memory(self, **fields: FieldSpec) -> Memory:
        """An empty memory, in which each image has logits."""
        return super().make_memory(logits=((self.network.classes,), torch.float32), **fields)

    def grow(self, classes: int) -> None:
        """Widen the classifier and the stored logits; a class unknown then had the logit 0."""
        super().grow(classes)
        self.memory.grow_field("logits", self.network.classes)

    def forget(self, label: int) -> None:
        """Drop a class, also from the logits stored with other images."""
        super().forget(label)
        self.memory.fields["logits"][:, label] = 0

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state, whose logits are of as many classes as the network's."""
        super().load_state_dict(state)
        if self.memory.fields["logits"].shape[1] != self.network.classes:
            raise ValueError("the logits of the state are not of the classes of its network")
