"""On a pretended GPU: steps keep their tensors on the device, and never wait for it.

`test_gpu_steps` tests the same on a GPU.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from onpro.methods import methods
from onpro.streams import Batch
from onpro.training.stepper import Stepper
from tests.methods.learners import WRAPPED, batches, learner
from tests.pretended_gpu import DEVICE, BlockingCopyError, PretendedGPU

NAMES = sorted({*methods(), *WRAPPED})


def moved(gpu: PretendedGPU, name: str) -> tuple[Stepper, list[Batch]]:
    """A method that has learned into its second task, on the GPU, and the batches that follow."""
    method = learner(name, memory=40)
    for each in method.learners:
        each.memory.samples_by_key = True  # as on a GPU
    stepper = Stepper(method)
    for batch in batches(14):
        stepper.step(batch)
    there = gpu.move(stepper)
    there.use("eager")
    return there, gpu.move(batches(4, start=14))


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_no_step_waits_for_the_device(name: str) -> None:
    gpu = PretendedGPU()
    stepper, (*first, last) = moved(gpu, name)
    with gpu.used():
        for batch in first:  # until constants are there
            stepper.step(batch)
        gpu.strict = True
        terms = stepper.step(last)
    assert all(term.device == DEVICE for term in terms.values())


@pytest.mark.thorough
@pytest.mark.parametrize("name", NAMES)
def test_predictions_and_new_classes_stay_on_the_device(name: str) -> None:
    gpu = PretendedGPU()
    stepper, (batch, *_) = moved(gpu, name)
    method = stepper.method
    needs_values = suppress(DataDependentOutputException, DynamicOutputShapeException)
    with gpu.used(), needs_values:  # outside steps a method may wait
        method.grow(9)
        stepper.step(batch)
        assert method.predict(batch.images).device == DEVICE


WAITS: dict[str, tuple[type[Exception], Callable[[Tensor], Any]]] = {
    "a number": (DataDependentOutputException, lambda x: x.sum().item()),
    "a condition": (DataDependentOutputException, lambda x: bool(x.sum() > 0)),
    "a mask": (DynamicOutputShapeException, lambda x: x[x > 0]),
    "a list of indices": (DynamicOutputShapeException, torch.nonzero),
    "distinct values": (DynamicOutputShapeException, torch.unique),
    "a copy to the host": (BlockingCopyError, lambda x: x.cpu()),
    "a copy from the host": (BlockingCopyError, lambda x: torch.arange(3).to(x.device)),
}


@pytest.mark.parametrize("kind", WAITS)
def test_the_pretended_gpu_notices(kind: str) -> None:
    error, wait = WAITS[kind]
    gpu = PretendedGPU()
    gpu.strict = True
    x = gpu.move(torch.arange(3.0))
    with gpu.used():
        assert (2 * x).device == DEVICE
        with pytest.raises(error):
            wait(x)


def test_the_pretended_gpu_notices_tensors_on_two_devices() -> None:
    gpu = PretendedGPU()
    x = gpu.move(torch.arange(3.0))
    with gpu.used(), pytest.raises(RuntimeError, match=r"(?i)device"):
        x + torch.arange(3.0)


def test_a_gradient_is_there_only_for_what_a_loss_depends_on() -> None:
    gpu = PretendedGPU()
    x, y = gpu.move([torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)])
    with gpu.used():
        used, unused = torch.autograd.grad((2 * x).sum(), [x, y], allow_unused=True)
        (2 * x).sum().backward()
    assert used is not None
    assert x.grad is not None
    assert used.shape == x.grad.shape == (2,)
    assert unused is None
    assert y.grad is None
