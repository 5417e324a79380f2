"""Two whole training steps of OnPro against the official implementation."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.memory import Memory
from onpro.methods import Context
from onpro.methods.onpro import OnPro, OnProSettings
from onpro.streams import Batch
from tests.conftest import Golden
from tests.methods.learners import WithoutChance

IMAGE = (3, 32, 32)
PARTS = {"linear": "classifier", "simclr": "projector"}


def ours(name: str) -> str:
    """Our name of a parameter of the official network."""
    first, _, rest = name.partition(".")
    return f"{PARTS[first]}.{rest}" if first in PARTS else f"encoder.{name}"


class Fixed(WithoutChance[OnProSettings], OnPro):
    """OnPro without randomness."""


@pytest.fixture
def learner(golden: Golden) -> Fixed:
    settings = OnProSettings(encoder="resnet18-nf20")
    as_it_is = Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    context = Context(IMAGE, as_it_is, num_classes=10, channels_last=False)
    method = Fixed(settings, context)
    method.memory = Memory(200, IMAGE, device="cpu", dtype=torch.float32)
    state = {ours(name): value for name, value in golden.group("model.").items()}
    method.network.load_state_dict(state)
    return method


def compare(learner: Fixed, golden: Golden, step: str, terms: dict[str, Tensor]) -> None:
    loss = golden[f"{step}.loss"]
    torch.testing.assert_close(sum(terms.values()), loss, rtol=1e-5, atol=0)
    parameters = dict(learner.network.named_parameters())
    after = learner.network.state_dict()
    gradients = golden.group(f"{step}.grad.")
    values = golden.group(f"{step}.after.")
    assert gradients
    assert values
    for name, expected in gradients.items():
        gradient = parameters[ours(name)].grad
        assert gradient is not None
        assert (gradient - expected).norm() <= 1e-4 * expected.norm(), name
    for name, expected in values.items():
        assert (after[ours(name)] - expected).norm() <= 1e-4 * expected.norm(), name


def test_very_first_step(learner: Fixed, golden: Golden) -> None:
    step = "first_very_first_step"
    learner.slice_starts = golden[f"{step}.slice_starts"].tolist()
    batch = Batch(golden["step_x"], golden["step_first_y"], 0, (0, 1))
    terms = learner.observe(batch)
    for name, key in {"ins_new": "ins_new", "ope_new": "ope", "ce": "ce"}.items():
        assert terms[name].item() == pytest.approx(golden[f"{step}.{key}"].item(), rel=1e-5)
    assert set(terms) == {"ins_new", "ope_new", "ce"}
    compare(learner, golden, step, terms)


def test_first_step_of_the_second_task(learner: Fixed, golden: Golden) -> None:
    step = "later_task_first_step"
    learner.slice_starts = golden[f"{step}.slice_starts"].tolist()
    stored, labels = golden["step_memory_x"], golden["step_memory_y"]
    learner.memory.write(torch.arange(len(labels)), stored, labels)
    learner.memory.advance(len(labels))
    learner.progress = replace(learner.progress, task=0, announced=0, task_open=True, seen={0, 1})
    batch = Batch(golden["step_x"], golden["step_later_y"], 1, (2, 3))
    terms = learner.observe(batch)
    seen, new = golden[f"{step}.ope"].tolist()
    expected = {
        "ins_new": golden[f"{step}.ins_new"].item(),
        "ins_replay": golden[f"{step}.ins_replay"].item(),
        "ope_seen": seen,
        "ope_new": new,
        "ce": golden[f"{step}.ce"].item(),
    }
    for name, value in expected.items():
        assert terms[name].item() == pytest.approx(value, rel=1e-5), name
    assert set(terms) == set(expected)
    compare(learner, golden, step, terms)
