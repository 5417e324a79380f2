"""A frozen copy of the network as it was when a task ended, for methods that distil from it."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from onpro.losses.precision import at_least_float32
from onpro.methods.base import Context
from onpro.methods.network import Network


class Teacher:
    """What the network was: its weights never move, and no gradient flows into it.

    It is there from the start, so that it is part of a method's state like everything else;
    `in_use` says whether there is anything to learn from it yet.

    Args:
        network: The network it will be a copy of.
        context: The run, whose precision and layout it computes in.
        training: Whether it is queried in train mode: it then normalises by the statistics of the
            batch it is shown, and its own running statistics move. Otherwise in eval mode.
    """

    def __init__(self, network: Network, context: Context, *, training: bool = False) -> None:
        self.context = context
        self.network = deepcopy(network).requires_grad_(False).train(training)
        self.in_use = False
        self.known = torch.zeros(self.classes, dtype=torch.bool, device=context.device)
        """(classes,): which classes the network had met when it was copied."""

    @property
    def classes(self) -> int:
        """Number of classes it has outputs for; the student may have grown more since."""
        return self.network.classes

    def become(self, network: Network, seen: Collection[int]) -> None:
        """Copy the network, running statistics included, which has met these classes."""
        self._widen(network.classifier.out_features)
        self.network.load_state_dict(network.state_dict())
        known = torch.tensor([label in seen for label in range(self.classes)])
        self.known = known.to(self.context.device, non_blocking=True)
        self.in_use = True

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """H of network input (n, channels, height, width): (n, features), float32 or better."""
        dtype, device = self.context.autocast, self.context.device
        with torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            features = self.network.features(images.contiguous(memory_format=self.context.layout))
        return at_least_float32(features)

    @torch.no_grad()
    def project(self, features: Tensor) -> Tensor:
        """U of features (n, features), float32 or better."""
        return self.network.project(features)

    @torch.no_grad()
    def classify(self, images: Tensor) -> Tensor:
        """Logits (n, classes) of network input; only those `known` mean anything."""
        logits: Tensor = self.network.classifier(self.features(images))
        return logits

    def forget(self, label: int, outputs: Sequence[int]) -> None:
        """Erase what it says of a class.

        Args:
            label: the class.
            outputs: the classifier's outputs that stand for it.
        """
        if label < self.classes:
            self.known[label] = False
            for parameter in self.network.classifier.parameters():
                parameter[list(outputs)] = 0

    def state_dict(self) -> dict[str, Any]:
        """The copy, and whether it is in use."""
        return {
            "in_use": self.in_use,
            "known": self.known.clone(),
            "network": self.network.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Become the teacher that gave the state; it may have more classes than this one."""
        self._widen(len(state["network"]["classifier.bias"]))
        self.network.load_state_dict(state["network"])
        known, in_use = state["known"], state["in_use"]
        if (known.shape, known.dtype, type(in_use)) != ((self.classes,), torch.bool, bool):
            raise ValueError("the state's previous network and the classes it knows differ")
        self.known, self.in_use = known.to(self.context.device), in_use

    def _widen(self, outputs: int) -> None:
        """Give the classifier as many outputs; whatever the new ones hold is overwritten next."""
        classifier, generator = self.network.classifier, torch.Generator(self.context.device)
        classifier.grow(max(outputs, classifier.out_features), generator=generator)
        self.network.requires_grad_(False)
