"""Fixtures every test may use."""

import os
import signal
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; read when torch loads
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command sets it
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU is first used

import pytest
import torch

from onpro.methods import Terms
from onpro.runs.threads import cpu_threads
from onpro.streams import Batch
from onpro.training import trainer
from onpro.training.stepper import Stepper
from tests.golden.values import Golden, matching

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what is in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Iterator[Golden]:
    """The golden numbers that the test's mark names, all of which it must read."""
    mark = request.node.get_closest_marker("golden")
    assert mark is not None, "name what the test reads: @pytest.mark.golden(patterns)"
    parameters = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    values = Golden(matching(pattern.format(**parameters) for pattern in mark.args))
    failed = request.session.testsfailed
    yield values
    if request.session.testsfailed == failed:
        values.assert_all_read()


@pytest.fixture(autouse=True)
def _untouched_global_randomness() -> Iterator[None]:
    """Nothing in the package may read or move the global random state of torch."""
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "the global random state was used"


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Equal numbers of threads give equal results, here and in a process."""
    with cpu_threads(1):
        yield


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
