"""A moving average of a method's network: it teaches the network, and predicts with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from onpro.methods.base import Method
from onpro.methods.settings import Settings, require
from onpro.nn.average import MeanNetwork, MovingAverage
from onpro.nn.network import Network


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

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state, whose mean is not computed yet."""
        super().load_state_dict(state)
        self.mean.moment = None

    def grow(self, classes: int) -> None:
        """Make room for classes, also in the average."""
        super().grow(classes)
        self.momentum_teacher.grow(self.network)

    def forget(self, label: int) -> None:
        """Drop a class, also from the average."""
        super().forget(label)
        self.momentum_teacher.renew(self.network, self.network.outputs_of(label))
