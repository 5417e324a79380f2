"""The optimizers compute what torch's do, without importing torch's compiler."""

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from onpro.nn.optimizers import SGD, Adam


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("ours", "theirs", "values"),
    [
        (SGD, torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (Adam, torch.optim.Adam, {"betas": (0.9, 0.99), "weight_decay": 0.1}),
    ],
)
def test_steps_are_those_of_torch(ours: Any, theirs: Any, values: Any, fused: bool) -> None:
    results = []
    for kind in (ours, theirs):
        weights = [nn.Parameter(torch.linspace(-1, 1, 6)), nn.Parameter(torch.ones(2, 3))]
        optimizer = kind(weights, 0.1, fused=fused, **values)
        for _ in range(4):
            optimizer.zero_grad()
            torch.autograd.backward([((w - 0.3) ** 3).sum() for w in weights])
            optimizer.step()
            state = optimizer.state_dict()
            optimizer = kind(weights, 0.1, fused=fused, **values)
            optimizer.load_state_dict(state)
        results.append(torch.cat([w.detach().flatten() for w in weights]))
    assert torch.equal(*results)


TRAIN_ALL = """
import sys
from onpro.runs import RunConfig, prepare
from onpro.methods import settings_for
from onpro.methods import methods

for name in methods():
    if name != "gss":  # its per-sample gradients (torch.func) import the compiler
        values = {"data": "tiny", "memory": 20, "limit_per_class": 12, "device": "cpu"}
        prepare(RunConfig(name, settings_for(name, "tiny"), **values)).run()
        assert "torch._dynamo" not in sys.modules, f"{name} imports torch's compiler"
"""


@pytest.mark.thorough
def test_training_does_not_load_the_compiler() -> None:
    """The import would dominate the start-up time of a process."""
    subprocess.run([sys.executable, "-c", TRAIN_ALL], check=True)
