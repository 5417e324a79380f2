"""On a GPU: a training step never waits for the device."""

import warnings

import pytest
import torch

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.methods import Context, method, methods, settings_for
from onpro.nn import Precision
from onpro.streams import ClassIncremental
from tests.methods.learners import WRAPPED, stepper

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "bf16"])
@pytest.mark.parametrize("name", [*sorted(methods()), *WRAPPED])
def test_no_step_waits_for_the_device(name: str, precision: Precision) -> None:
    data = tiny()
    device = torch.device("cuda")
    stream = ClassIncremental(data, 3, device=device)
    context = Context(
        data.image_shape,
        Normalise(data.mean, data.std),
        num_classes=stream.num_classes,
        memory=40,
        device=device,
        precision=precision,
    )
    learner = method(name)(settings_for(name, "tiny"), context)
    steps = iter(stream)
    for _ in range(14):  # into the second task, so that constants and first uses are over
        stepper(learner).step(next(steps))
    batches = [next(steps) for _ in range(6)]
    torch.cuda.synchronize()
    with warnings.catch_warnings():  # of a mode that does not know all waits
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            stepper(learner).step(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
