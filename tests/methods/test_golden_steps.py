"""Whole training steps of OnPro and OCM against the official implementations.

An untrained network amplifies rounding: in float32 the gradients of its first layers differ by some
tenths of a percent between two processors. So whole steps run in float64, where one part in 10¹¹ is
left of that, and only the terms of the loss are compared in float32 too.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from onpro.augment import Normalise
from onpro.memory import Memory
from onpro.methods import Context
from onpro.methods.base import S
from onpro.methods.ocm import OCM, OCMSettings
from onpro.methods.onpro import OnPro, OnProSettings
from onpro.streams import Batch
from tests.golden.values import Golden
from tests.methods.learners import WithoutChance, given_slices, stepper

IMAGE = (3, 32, 32)
PARTS = {"linear": "classifier", "simclr": "projector"}

CLOSE = {torch.float64: 1e-6, torch.float32: 1e-5}
"""How close losses and, in float64, tensors are, relative to their norm."""


class FixedOnPro(WithoutChance[OnProSettings], OnPro):
    """OnPro without randomness."""


class FixedOCM(WithoutChance[OCMSettings], OCM):
    """OCM without randomness."""


def ours(name: str) -> str:
    """Our name of a parameter of the official network."""
    first, _, rest = name.partition(".")
    return f"{PARTS[first]}.{rest}" if first in PARTS else f"encoder.{name}"


def load(network: nn.Module, state: Mapping[str, Tensor], dtype: torch.dtype) -> None:
    network.to(dtype).load_state_dict({ours(name): value for name, value in state.items()})


def context() -> Context:
    unused = Normalise((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    return Context(IMAGE, unused, num_classes=10)


def first_task_over(method: WithoutChance[S], images: Tensor, labels: Tensor) -> None:
    """Let a first task of classes 0 and 1 be over, with these images in memory."""
    method.memory.write(torch.arange(len(labels)), images, labels)
    method.memory.advance(len(labels))
    method.progress = replace(
        method.progress, task=0, announced=0, task_open=True, steps_in_task=1, seen={0, 1}
    )
    stepper(method).finish_task()


def compare(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Every expected tensor, by its official name."""
    for name, value in expected.items():
        found = actual[ours(name)]
        assert found.dtype == torch.float64
        assert (found - value).norm() <= CLOSE[torch.float64] * value.norm(), name


def compare_network(network: nn.Module, official: Golden) -> None:
    """Gradients, values after the step and running statistics."""
    gradients = {k: p.grad for k, p in network.named_parameters() if p.grad is not None}
    norms = {ours(name): norm.item() for name, norm in official.group("grad_norm.").items()}
    assert norms.keys() == dict(network.named_parameters()).keys()
    assert {name: gradient.norm().item() for name, gradient in gradients.items()} == pytest.approx(
        norms, rel=CLOSE[torch.float64]
    )
    compare(gradients, official.group("grad."))
    compare(network.state_dict(), official.group("after."))


def compare_terms(
    terms: Mapping[str, Tensor], expected: Mapping[str, Tensor], loss: Tensor, dtype: torch.dtype
) -> None:
    ours = {name: term.item() for name, term in terms.items()}
    theirs = {name: term.item() for name, term in expected.items()}
    assert ours == pytest.approx(theirs, rel=CLOSE[dtype])
    assert sum(ours.values()) == pytest.approx(loss.item(), rel=CLOSE[dtype])


def terms_of_step(
    method: WithoutChance[S], batch: Batch, official: Golden, dtype: torch.dtype
) -> Mapping[str, Tensor]:
    """Take a step; in float32, where only the terms are compared, without its backward pass."""
    if dtype == torch.float32:
        method.minimise = lambda terms: None  # type: ignore[method-assign] # of this object alone
    with given_slices(official["slice_starts"].tolist()):
        return stepper(method).step(batch)


# OnPro


def onpro_step(golden: Golden, official: Golden, dtype: torch.dtype, task: int) -> FixedOnPro:
    """Run a step, compare the terms of its loss."""
    method = FixedOnPro(OnProSettings(encoder="resnet18-nf20"), context())
    load(method.network, golden.group("onpro/model."), dtype)
    method.memory = Memory(200, IMAGE, device="cpu", dtype=dtype)
    expected = {name: official[name] for name in ("ins_new", "ce")}
    if task == 0:
        expected["ope_new"] = official["ope"]
        labels = golden["onpro/step_first_y"]
    else:
        expected["ins_replay"] = official["ins_replay"]
        expected["ope_seen"], expected["ope_new"] = official["ope"]
        stored = golden["onpro/step_memory_x"].to(dtype)
        first_task_over(method, stored, golden["onpro/step_memory_y"])
        labels = golden["onpro/step_later_y"]
    batch = Batch(golden["onpro/step_x"].to(dtype), labels, task, (2 * task, 2 * task + 1))
    terms = terms_of_step(method, batch, official, dtype)
    compare_terms(terms, expected, official["loss"], dtype)
    return method


FIRST_INPUTS = ("onpro/model.*", "onpro/step_x", "onpro/step_first_y")
LATER_INPUTS = ("onpro/model.*", "onpro/step_x", "onpro/step_later_y", "onpro/step_memory_?")


@pytest.mark.thorough
@pytest.mark.golden(*FIRST_INPUTS, "steps64/onpro.first_very_first_step.*")
def test_very_first_step(golden: Golden) -> None:
    official = golden.group("steps64/onpro.first_very_first_step.")
    method = onpro_step(golden, official, torch.float64, task=0)
    compare_network(method.network, official)


@pytest.mark.thorough
@pytest.mark.golden(*LATER_INPUTS, "steps64/onpro.later_task_first_step.*")
def test_first_step_of_the_second_task(golden: Golden) -> None:
    official = golden.group("steps64/onpro.later_task_first_step.")
    method = onpro_step(golden, official, torch.float64, task=1)
    compare_network(method.network, official)


def float32_terms(step: str, *names: str) -> list[str]:
    return [f"{step}.{name}" for name in ("slice_starts", "loss", "ce", *names)]


@pytest.mark.golden(*FIRST_INPUTS, *float32_terms("onpro/first_very_first_step", "ins_new", "ope"))
def test_terms_of_the_very_first_step_in_float32(golden: Golden) -> None:
    onpro_step(golden, golden.group("onpro/first_very_first_step."), torch.float32, task=0)


@pytest.mark.thorough
@pytest.mark.golden(*LATER_INPUTS, *float32_terms("onpro/later_task_first_step", "ins_*", "ope"))
def test_terms_of_the_second_task_in_float32(golden: Golden) -> None:
    onpro_step(golden, golden.group("onpro/later_task_first_step."), torch.float32, task=1)


# OCM


def ocm_step(golden: Golden, official: Golden, dtype: torch.dtype, task: int) -> FixedOCM:
    """Run a step, compare the terms of its loss."""
    given = golden.group("baselines/ocm.step.")
    method = FixedOCM(OCMSettings(encoder="resnet18-nf20"), context())
    load(method.network, golden.group("baselines/ocm.model."), dtype)
    method.memory = Memory(200, IMAGE, device="cpu", dtype=dtype)
    expected = {"ins_new": official["l_n"], "ce": official["ce"]}
    if task == 0:
        labels = given["first_y"]
    else:
        expected |= {"ins_replay": official["l_u"], "previous": official["l_prev"]}
        expected["mse"] = official["mse"]
        first_task_over(method, given["memory_x"].to(dtype), given["memory_y"])
        load(method.previous.network, golden.group("baselines/ocm.previous."), dtype)
        labels = given["later_y"]
    batch = Batch(given["x"].to(dtype), labels, task, (2 * task, 2 * task + 1))
    terms = terms_of_step(method, batch, official, dtype)
    compare_terms(terms, expected, official["loss"], dtype)
    return method


OCM_FIRST_INPUTS = ("baselines/ocm.model.*", "baselines/ocm.step.x", "baselines/ocm.step.first_y")
OCM_LATER_INPUTS = (
    "baselines/ocm.model.*",
    "baselines/ocm.previous.*",
    "baselines/ocm.step.x",
    "baselines/ocm.step.later_y",
    "baselines/ocm.step.memory_?",
)


@pytest.mark.thorough
@pytest.mark.golden(*OCM_FIRST_INPUTS, "steps64/ocm.first_step.*")
def test_ocm_first_step(golden: Golden) -> None:
    official = golden.group("steps64/ocm.first_step.")
    method = ocm_step(golden, official, torch.float64, task=0)
    compare_network(method.network, official)


@pytest.mark.thorough
@pytest.mark.golden(*OCM_LATER_INPUTS, "steps64/ocm.later_step.*")
def test_ocm_later_step(golden: Golden) -> None:
    official = golden.group("steps64/ocm.later_step.")
    method = ocm_step(golden, official, torch.float64, task=1)
    compare_network(method.network, official)
    compare(method.previous.network.state_dict(), official.group("previous_after."))


@pytest.mark.golden(*OCM_FIRST_INPUTS, *float32_terms("baselines/ocm.first_step", "l_n"))
def test_terms_of_ocms_first_step_in_float32(golden: Golden) -> None:
    ocm_step(golden, golden.group("baselines/ocm.first_step."), torch.float32, task=0)


@pytest.mark.thorough
@pytest.mark.golden(*OCM_LATER_INPUTS, *float32_terms("baselines/ocm.later_step", "l_*", "mse"))
def test_terms_of_ocms_later_step_in_float32(golden: Golden) -> None:
    ocm_step(golden, golden.group("baselines/ocm.later_step."), torch.float32, task=1)
