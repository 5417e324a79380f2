"""Where a run computes, with and without a GPU."""

import pytest
import torch

from onpro.errors import UserError
from onpro.training import pick_device, pick_precision

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", torch.backends.cudnn.benchmark)


@pytest.mark.usefixtures("without_gpu")
def test_without_a_gpu_auto_is_the_cpu_and_cuda_is_refused() -> None:
    assert pick_device("auto") == CPU
    assert pick_device("cpu") == CPU
    with pytest.raises(UserError, match=r"no CUDA device.*--device cpu"):
        pick_device("cuda")


@pytest.mark.usefixtures("with_gpu")
def test_with_a_gpu_auto_takes_it() -> None:
    assert pick_device("auto") == GPU
    assert pick_device("cuda") == GPU
    assert pick_device("cpu") == CPU


@pytest.mark.parametrize(("supported", "picked"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_bf16_on_a_gpu_that_has_it(
    monkeypatch: pytest.MonkeyPatch, supported: bool, picked: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: supported)
    assert pick_precision("auto", GPU) == picked


def test_auto_is_fp32_on_a_cpu_and_a_wish_is_granted() -> None:
    assert pick_precision("auto", CPU) == "fp32"
    assert [pick_precision("fp16", d) for d in (CPU, GPU)] == ["fp16", "fp16"]
    assert pick_precision("bf16", CPU) == "bf16"
