"""ASER, CoPE, DVC, OCM and PASS against their original implementations."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from onpro import losses
from onpro.augment import Normalise
from onpro.memory import Memory
from onpro.methods import Context
from onpro.methods.ocm import OCM, OCMSettings
from onpro.streams import Batch
from tests.conftest import Golden

IMAGE = (3, 32, 32)
PARTS = {"linear": "classifier", "simclr": "projector"}


def leaf(values: Tensor) -> Tensor:
    return values.clone().requires_grad_(True)


def assert_loss(ours: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(ours.detach(), expected, rtol=1e-5, atol=1e-7)


def assert_gradient(of: Tensor, expected: Tensor) -> None:
    assert of.grad is not None
    torch.testing.assert_close(of.grad, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))


# OCM


@pytest.mark.parametrize(
    ("name", "matrix", "labels"),
    [("l_n", "sim", "labels"), ("l_u", "sim", "labels"), ("l_prev", "prev_sim", "prev_labels")],
)
def test_ocm_losses(golden_baselines: Golden, name: str, matrix: str, labels: str) -> None:
    case = golden_baselines.group("ocm.losses.")
    functions = {
        "l_n": losses.new_instance_loss,
        "l_u": losses.replay_instance_loss,
        "l_prev": losses.previous_instance_loss,
    }
    similarity = leaf(case[matrix])
    loss = functions[name](similarity, case[labels], 0.07)
    loss.backward()
    assert_loss(loss, case[name])
    assert_gradient(similarity, case[f"{name}_grad"])


def ours(name: str) -> str:
    """Our name of a parameter of the original network."""
    first, _, rest = name.partition(".")
    return f"{PARTS[first]}.{rest}" if first in PARTS else f"encoder.{name}"


class FixedOCM(OCM):
    """OCM without randomness: no augmentation, given slices, the whole memory in order."""

    slice_starts: list[int]

    def vary(self, images: Tensor) -> Tensor:
        return images

    def draw(self, count: int) -> tuple[Tensor, Tensor]:
        return self.prepare(self.memory.images), self.memory.labels

    def slice_start(self, positions: int) -> Tensor:
        return torch.tensor([self.slice_starts.pop(0)])


@pytest.fixture
def ocm(golden_baselines: Golden) -> FixedOCM:
    as_it_is = Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    context = Context(IMAGE, as_it_is, num_classes=10, channels_last=False)
    method = FixedOCM(OCMSettings(encoder="resnet18-nf20"), context)
    method.memory = Memory(200, IMAGE, device="cpu", dtype=torch.float32)
    state = golden_baselines.group("ocm.model.")
    method.network.load_state_dict({ours(name): value for name, value in state.items()})
    return method


def compare_step(method: FixedOCM, golden: Golden, step: str, terms: Mapping[str, Tensor]) -> None:
    expected_terms = {"ins_new": "l_n", "ins_replay": "l_u", "previous": "l_prev"}
    for name, term in terms.items():
        assert_loss(term, golden[f"{step}.{expected_terms.get(name, name)}"])
    assert_loss(torch.stack(list(terms.values())).sum(), golden[f"{step}.loss"])
    parameters = dict(method.network.named_parameters())
    gradients = golden.group(f"{step}.grad.")
    assert gradients
    for name, expected in gradients.items():
        gradient = parameters[ours(name)].grad
        assert gradient is not None
        assert (gradient - expected).abs().max() <= 1e-3 * expected.abs().max(), name
    after = method.network.state_dict()
    values = golden.group(f"{step}.after.")
    assert any("running" in name for name in values)
    for name, expected in values.items():
        if "running" in name:
            torch.testing.assert_close(after[ours(name)], expected, rtol=1e-4, atol=1e-5)
        else:  # the sign of a near-zero gradient decides a first step of Adam
            assert (after[ours(name)] - expected).abs().max() <= 2.1e-3, name


def test_ocm_first_step(ocm: FixedOCM, golden_baselines: Golden) -> None:
    step = "ocm.first_step"
    ocm.slice_starts = golden_baselines[f"{step}.slice_starts"].tolist()
    batch = Batch(golden_baselines["ocm.step.x"], golden_baselines["ocm.step.first_y"], 0, (0, 1))
    terms = ocm.observe(batch)
    assert set(terms) == {"ins_new", "ce"}
    compare_step(ocm, golden_baselines, step, terms)


def test_ocm_later_step(ocm: FixedOCM, golden_baselines: Golden) -> None:
    step = "ocm.later_step"
    ocm.slice_starts = golden_baselines[f"{step}.slice_starts"].tolist()
    stored, labels = golden_baselines["ocm.step.memory_x"], golden_baselines["ocm.step.memory_y"]
    ocm.memory.write(torch.arange(len(labels)), stored, labels)
    ocm.memory.advance(len(labels))
    ocm.progress = replace(ocm.progress, task=0, announced=0, task_open=True, seen={0, 1})
    ocm.finish_task()
    previous = golden_baselines.group("ocm.previous.")
    ocm.previous.network.load_state_dict({ours(name): value for name, value in previous.items()})
    batch = Batch(golden_baselines["ocm.step.x"], golden_baselines["ocm.step.later_y"], 1, (2, 3))
    terms = ocm.observe(batch)
    assert set(terms) == {"ins_new", "ins_replay", "previous", "ce", "mse"}
    compare_step(ocm, golden_baselines, step, terms)
    after = ocm.previous.network.state_dict()
    statistics = golden_baselines.group(f"{step}.previous_after.")
    assert statistics
    for name, expected in statistics.items():
        torch.testing.assert_close(after[ours(name)], expected, rtol=1e-4, atol=1e-5)
