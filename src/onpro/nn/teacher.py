"""A frozen copy of the network as it was at the end of a task, to distil from."""

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from onpro.nn.network import Network


class Teacher:
    """A copy of a network whose weights do not change and get no gradient.

    It exists from the start, as part of a method's state; `in_use` says whether it has been set.

    Args:
        network: The network to copy.
        training: Whether it stays in train mode: it then normalises by the statistics of its batch,
            and its own running statistics move. Otherwise it is in eval mode.
    """

    def __init__(self, network: Network, *, training: bool = False) -> None:
        self.network = deepcopy(network).requires_grad_(False).train(training)
        self.in_use = False
        device = network.classifier.weight.device
        self.known = torch.zeros(self.classes, dtype=torch.bool, device=device)
        """(classes,): the classes that the network had met when it was copied."""

    @property
    def classes(self) -> int:
        """Number of classes it has outputs for; the student may have grown more since."""
        return self.network.classes

    def become(self, network: Network, seen: Collection[int]) -> None:
        """Copy the network, running statistics included, and the set of classes it has met."""
        widen(self.network, network.classifier.out_features)
        self.network.load_state_dict(network.state_dict())
        known = torch.tensor([label in seen for label in range(self.classes)], dtype=torch.bool)
        self.known = known.to(self.known.device, non_blocking=True)
        self.in_use = True

    @torch.no_grad()
    def features(self, images: Tensor) -> Tensor:
        """H of network input (n, channels, height, width): (n, features), float32 or better."""
        return self.network.features(images)

    @torch.no_grad()
    def embed(self, images: Tensor) -> Tensor:
        """Z of network input: projections of length 1."""
        return self.network.embed(self.network.features(images))

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits (n, outputs) of network input; only those of `known` classes are trained."""
        return self.network.logits(images)

    def forget(self, label: int, outputs: Sequence[int]) -> None:
        """Erase a class.

        Args:
            label: the class.
            outputs: the classifier's outputs for it.
        """
        if label < self.classes:
            self.known[label] = False
            for classifier in self.network.classifiers():
                for parameter in classifier.parameters():
                    parameter[list(outputs)] = 0

    def state_dict(self) -> dict[str, Any]:
        """The copy, and whether it is in use."""
        return {
            "in_use": self.in_use,
            "known": self.known.clone(),
            "network": self.network.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state; it may have more classes than this one."""
        widen(self.network, len(state["network"]["classifier.weight"]))
        self.network.load_state_dict(state["network"])
        known, in_use = state["known"], state["in_use"]
        if (known.shape, known.dtype, type(in_use)) != ((self.classes,), torch.bool, bool):
            raise ValueError("the state's previous network and the classes it knows differ")
        self.known, self.in_use = known.to(self.known.device), in_use


def widen(network: Network, outputs: int) -> None:
    """Give every classifier of a frozen network as many outputs; new ones are overwritten next."""
    if outputs <= network.classifier.out_features:  # a captured step cannot make a generator
        return
    generator = torch.Generator(network.classifier.weight.device)
    for classifier in network.classifiers():
        classifier.grow(outputs, generator=generator)
    network.requires_grad_(False)
