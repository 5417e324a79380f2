"""Fixtures of tests of runs."""

import pytest

from onpro.methods import Terms
from onpro.streams import Batch
from onpro.training import trainer
from onpro.training.stepper import Stepper


class StepClock:
    """A clock that only training steps move, by a second each."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """What time it is."""
        return self.now


@pytest.fixture
def step_clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    """Trainers look at a clock that no other process disturbs."""
    clock = StepClock()
    step = Stepper.step

    def timed(stepper: Stepper, batch: Batch) -> Terms:
        clock.now += 1
        return step(stepper, batch)

    monkeypatch.setattr(Stepper, "step", timed)
    monkeypatch.setattr(trainer, "time", clock)
    return clock
