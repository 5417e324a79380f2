"""DER++ and Mammoth's `derpp`, step by step; needs a checkout of Mammoth, named by $MAMMOTH.

MAMMOTH=../mammoth uv run pytest tests/methods/test_derpp_mammoth.py
"""

import os
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn.functional import cross_entropy

from onpro.memory import reservoir, retrieval
from tests.methods.learners import batches, learner, stepper

MAMMOTH = Path(os.environ.get("MAMMOTH", "nowhere"))

pytestmark = pytest.mark.skipif(
    not (MAMMOTH / "models" / "derpp.py").is_file(), reason="$MAMMOTH names no checkout of Mammoth"
)

UNUSED: dict[str, dict[str, Any]] = {
    "utils.conf": {"create_seeded_dataloader": None, "get_device": None},
    "utils.kornia_utils": {"KorniaAugNoGrad": type("KorniaAugNoGrad", (), {})},
    "utils.args": {"add_rehearsal_args": None, "ArgumentParser": None},
    "models": {"__path__": [str(MAMMOTH / "models")]},
    "models.utils": {"__path__": []},
    "models.utils.continual_model": {"ContinualModel": object},
}
"""Modules that its method and memory import but do not need here, and that need more packages."""


def module(name: str, content: dict[str, Any]) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


def mammoths(network: torch.nn.Module, memory: int, replay_batch: int) -> Any:
    """Return Mammoth's method."""
    method = import_module("models.derpp").Derpp
    made = method.__new__(method)
    made.net, made.loss, made.transform, made.device = network, cross_entropy, None, "cpu"
    made.opt = torch.optim.SGD(network.parameters(), lr=0.03)
    made.args = SimpleNamespace(alpha=0.1, beta=0.5, minibatch_size=replay_batch)
    made.buffer = import_module("utils.buffer").Buffer(memory)
    return made


def test_steps_equal_those_of_mammoth(monkeypatch: pytest.MonkeyPatch) -> None:
    memory, replay_batch = 40, 16
    ours = learner(
        "derpp", float64=True, augmentation="none", memory=memory, replay_batch=replay_batch
    )
    network = deepcopy(ours.network).train()
    # Mammoth stores images and logits in float32: what it replays is made float64 again.
    network.register_forward_pre_hook(lambda _, images: (images[0].double(),))

    sampled: list[Any] = []
    slots: list[int] = []

    def uniform(*arguments: Any) -> Any:
        sampled.append(sample(*arguments))
        return sampled[-1]

    def sample_slots(*arguments: Any) -> Any:
        numbers = sample_sequential(*arguments)
        slots.extend(numbers.tolist())
        return numbers

    sample, sample_sequential = retrieval.uniform, reservoir.sample_slots_sequential
    stream = [*batches(20), *batches(20)]
    with (
        patch.object(retrieval, "uniform", uniform),
        patch.object(reservoir, "sample_slots_sequential", sample_slots),
    ):
        losses = [float(sum(stepper(ours).step(batch).values())) for batch in stream]

    monkeypatch.syspath_prepend(MAMMOTH)
    for name, content in UNUSED.items():
        monkeypatch.setitem(sys.modules, name, module(name, content))
    theirs = mammoths(network, memory, replay_batch)
    draws, numbers = iter(sampled), iter(slots)
    with (
        patch("numpy.random.choice", lambda *_, **__: next(draws).numpy()),
        patch("numpy.random.randint", lambda *_: next(numbers)),
    ):
        inputs = [ours.normalise(batch.images) for batch in stream]
        other = [
            theirs.observe(images, batch.labels, images)
            for images, batch in zip(inputs, stream, strict=True)
        ]
    assert not [*draws, *numbers]
    assert losses == pytest.approx(other, rel=1e-6)
    assert torch.equal(theirs.buffer.labels, ours.memory.labels)
    torch.testing.assert_close(theirs.buffer.logits, ours.memory.fields["logits"])
    for name, weights in network.state_dict().items():
        torch.testing.assert_close(weights, ours.network.state_dict()[name], rtol=1e-6, atol=1e-7)
