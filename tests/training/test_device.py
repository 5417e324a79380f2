"""Where a run computes, with and without a GPU."""

import os
import platform
import subprocess
import sys
from typing import Any

import pytest
import torch

from onpro.errors import UserError
from onpro.training import device, pick_device, pick_precision
from onpro.training.device import WORKSPACE, deterministic_mode

TOUCH_MEMORY = """
import resource, torch
from onpro.training.device import keep_freed_memory

kept = keep_freed_memory()
def touch():
    blocks = [torch.ones(4 * 2**20) for _ in range(6)]  # 16 MiB each
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    touch()
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

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


def test_tf32_is_for_gpus() -> None:
    assert pick_precision("tf32", GPU) == "tf32"
    with pytest.raises(UserError, match=r"tf32 needs a GPU: use fp32"):
        pick_precision("tf32", CPU)


def told() -> tuple[Any, ...]:
    """What torch has been told about equal results."""
    memory: Any = torch.utils.deterministic
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        memory.fill_uninitialized_memory,
        torch.backends.cudnn.deterministic,
        torch.backends.cudnn.benchmark,
        os.environ.get(WORKSPACE),
    )


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU whose first product is about to be computed."""
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(device, "_require_workspace", lambda _: None)


@pytest.mark.usefixtures("with_gpu", "multiplied")
def test_torch_is_told_to_repeat_itself_only_while_a_run_lasts() -> None:
    pick_device("cuda")
    before = told()
    with deterministic_mode(GPU):
        assert told() == (True, False, False, True, False, ":4096:8")
        pick_device("cuda")
        assert not torch.backends.cudnn.benchmark
    assert told() == before
    with pytest.raises(KeyError), deterministic_mode(GPU):
        raise KeyError
    assert told() == before


@pytest.mark.usefixtures("with_gpu", "multiplied")
def test_what_a_user_has_told_torch_already_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE, ":16:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        before = told()
        with deterministic_mode(GPU):
            assert told()[:2] == (True, False)
            assert told()[-1] == ":16:8"
        assert told() == before
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("with_gpu", "multiplied")
def test_nobody_is_told_where_nobody_asks_or_on_a_cpu() -> None:
    before = told()
    for place, wanted in ((CPU, True), (GPU, False)):
        with deterministic_mode(place, wanted):
            assert told() == before


def test_a_process_that_has_multiplied_otherwise_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Late:
        def __matmul__(self, other: object) -> None:
            raise RuntimeError(f"torch says at length that {WORKSPACE} is not set")

    monkeypatch.setattr(torch, "ones", lambda *_, **__: Late())
    before = told()
    with (
        pytest.raises(UserError, match=rf"process of its own, or set {WORKSPACE}=:4096:8"),
        deterministic_mode(GPU),
    ):
        pass
    assert told() == before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries decide themselves")
def test_freed_memory_is_used_again() -> None:
    """In a process of its own: it holds for the whole process."""
    done = subprocess.run(
        [sys.executable, "-c", TOUCH_MEMORY], capture_output=True, text=True, check=True
    )
    kept, faults = done.stdout.split()
    pages = 10 * 6 * 16 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert kept == "True"
    assert int(faults) < pages / 20
