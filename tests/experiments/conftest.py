"""Fixtures of tests of runs."""

from typing import Any

import pytest
from torch import Tensor

from onpro.methods import Method, Settings
from onpro.training import trainer


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
    learn = Method.observe

    def observe(method: Method[Settings], *arguments: Any) -> dict[str, Tensor]:
        clock.now += 1
        return learn(method, *arguments)

    monkeypatch.setattr(Method, "observe", observe)
    monkeypatch.setattr(trainer, "time", clock)
    return clock
