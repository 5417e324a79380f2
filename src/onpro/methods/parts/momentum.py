"""A moving average of a method's network: it teaches the network, and predicts with it."""

from collections.abc import Hashable
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch

from onpro.methods.base import Method
from onpro.methods.settings import Settings, require
from onpro.methods.state import Derived
from onpro.nn.average import MovingAverage, weights
from onpro.nn.network import Network
from onpro.nn.teacher import widen


@dataclass(frozen=True)
class TeacherSettings(Settings):
    """Settings of the moving average, and of distillation from it."""

    teacher_weight: float = 5.5
    """Weight λ of the distillation (default from MKD's paper)."""

    teacher_rate: float = 0.01
    """Share α of the network's weights that moves into the average at each step (default from MKD's
    paper)."""

    predict_with: Literal["mean", "student", "teacher"] = "mean"
    """Weights to predict with: the mean of the network's and the average's (default from MKD's
    paper), the network's own, or the average's."""

    def check(self) -> None:
        """Refuse values that cannot work."""
        super().check()
        self.require_at_least(0, "teacher_weight")
        require(0 < self.teacher_rate < 1, "the teacher rate must be above 0 and below 1.")


T = TypeVar("T", bound=TeacherSettings)


class MeanNetwork(Derived):
    """A network whose weights are the mean of two others'; its running statistics the first's.

    Args:
        like: A network of the same shape.
    """

    def __init__(self, like: Network) -> None:
        self.network = deepcopy(like).requires_grad_(False)

    def of(self, first: Network, second: Network, moment: Hashable) -> Network:
        """Return the mean of two networks at a moment of learning."""
        self.update(moment, lambda: self._average(first, second))
        return self.network

    @torch.no_grad()
    def _average(self, first: Network, second: Network) -> None:
        widen(self.network, first.classifier.out_features)
        torch._foreach_copy_(weights(self.network), weights(first))
        torch._foreach_lerp_(weights(self.network), weights(second), 0.5)
        for own, buffer in zip(self.network.buffers(), first.buffers(), strict=True):
            own.copy_(buffer)


class MomentumTaught(Method[T]):
    """A method whose network is followed by its moving average."""

    momentum_teacher: MovingAverage
    mean: MeanNetwork

    def start_average(self) -> None:
        """Start the average of the network, for constructors."""
        rate = self.settings.teacher_rate
        # So small at first that its outputs are nearly uniform (MKD's code).
        self.momentum_teacher = MovingAverage(self.network, rate, start=rate / (1 - rate))
        self.mean = MeanNetwork(self.network)

    def step(self) -> None:
        """One optimizer step, which the average follows."""
        super().step()
        self.momentum_teacher.follow(self.network)

    @property
    def predictor(self) -> Network:
        """The mean of network and average, or the one asked for."""
        if self.settings.predict_with == "mean":
            return self.mean.of(self.network, self.momentum_teacher.network, self.moment)
        return (
            self.network
            if self.settings.predict_with == "student"
            else self.momentum_teacher.network
        )

    @property
    def predicting_parts(self) -> tuple[str, ...]:
        """The average too."""
        return (*super().predicting_parts, "momentum_teacher")

    def grow(self, classes: int) -> None:
        """Make room for classes, also in the average."""
        super().grow(classes)
        self.momentum_teacher.grow(self.network)

    def forget(self, label: int) -> None:
        """Drop a class, also from the average."""
        super().forget(label)
        self.momentum_teacher.renew(self.network, self.network.outputs_of(label))
