"""Batch norm with residual connection and ReLU, with and without fused kernels."""

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from onpro.nn import batch_norm
from onpro.nn.batch_norm import BatchNorm, normalised_apart, use_fused_kernels
from tests.kernels import DEVICE, needs_kernels

Twice = tuple[Tensor, Tensor]
Compute = Callable[[Tensor, Tensor | None], Twice]

SHAPES = [
    ((3, 20, 5, 5), ()),
    ((10, 64, 16, 16), (7, 1, 2)),
    ((2, 128, 3, 3), ()),
    ((3, 512, 1, 2), (1, 2)),
]
"""Shapes of maps, and how many images are normalised together."""


def maps(shape: tuple[int, ...], seed: int, device: str = "cpu") -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator).to(device)
    return values.contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("activate", [False, True])
def test_it_is_batch_norm_then_sum_then_relu(added: bool, activate: bool) -> None:
    shape = (4, 6, 3, 3)
    norm, plain = BatchNorm(6), nn.BatchNorm2d(6)
    x, other = maps(shape, 0), maps(shape, 1) if added else None
    expected = plain(x) if other is None else plain(x) + other
    expected = relu(expected) if activate else expected
    assert torch.equal(norm(x, other, activate=activate), expected)
    for name, buffer in plain.named_buffers():
        assert torch.equal(norm.get_buffer(name), buffer)


def test_parts_of_a_batch_are_normalised_as_consecutive_batches() -> None:
    norm, reference = BatchNorm(6), BatchNorm(6)
    parts = [maps((n, 6, 3, 3), n) for n in (4, 1, 7)]
    with normalised_apart(norm, [4, 1, 7]):
        together = norm(torch.cat(parts))
    assert torch.equal(together, torch.cat([reference(part) for part in parts]))
    for name, buffer in reference.named_buffers():
        assert torch.equal(norm.get_buffer(name), buffer)
    assert torch.equal(norm(parts[0]), reference(parts[0]))  # only inside


def test_a_single_value_is_normalised_by_the_running_statistics() -> None:
    norm = BatchNorm(6)
    norm(maps((4, 6, 3, 3), 0))
    alone, several = maps((1, 6, 1, 1), 1), maps((3, 6, 1, 1), 2)
    with normalised_apart(norm, [1, 3]):
        together = norm(torch.cat([alone, several]).requires_grad_(), activate=False)
    together.sum().backward()  # although running statistics have moved since
    reference = BatchNorm(6)
    reference(maps((4, 6, 3, 3), 0))
    assert torch.equal(together[:1], reference.eval()(alone, activate=False))
    assert torch.equal(together[1:], reference.train()(several, activate=False))
    assert torch.equal(norm.get_buffer("running_mean"), reference.get_buffer("running_mean"))


def test_fused_kernels_are_not_used_on_a_cpu() -> None:
    norm, plain = BatchNorm(6), BatchNorm(6)
    use_fused_kernels(norm)
    x = maps((4, 6, 3, 3), 0)
    assert torch.equal(norm(x), plain(x))


def test_where_kernels_do_not_compile_a_warning_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(device: torch.device, dtype: torch.dtype) -> None:
        raise RuntimeError("Failed to find C compiler.\nSpecify one")

    monkeypatch.setattr(batch_norm, "fused_kernels_exist", lambda: True)
    monkeypatch.setattr(batch_norm, "_try_kernels", fail)
    assert not batch_norm.fused_kernels_work(torch.device("cpu"), torch.float32)
    assert not caplog.records
    assert not batch_norm.fused_kernels_work(torch.device("cuda", 7), torch.float32)
    assert "do not work here (Failed to find C compiler): training is slower." in caplog.text


@pytest.mark.gpu
@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("activate", [False, True])
@pytest.mark.parametrize(("shape", "groups"), SHAPES, ids=str)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # of the interpreter, to fp16
def test_fused_kernels_compute_the_same(
    shape: tuple[int, ...],
    groups: tuple[int, ...],
    activate: bool,
    added: bool,
    dtype: torch.dtype,
) -> None:
    from onpro.nn.fused_batch_norm import fused_batch_norm

    reference = BatchNorm(shape[1], device=DEVICE)
    with torch.no_grad():
        reference.weight.copy_(maps((1, shape[1], 1, 1), 5, DEVICE).flatten())
        reference.bias.copy_(maps((1, shape[1], 1, 1), 6, DEVICE).flatten())
    fused = deepcopy(reference)

    def plain(x: Tensor, other: Tensor | None) -> Twice:
        with normalised_apart(reference, groups):
            return reference.twice(x, other, activate=activate)

    def in_kernels(x: Tensor, other: Tensor | None) -> Twice:
        return fused_batch_norm(fused, x, other, activate=activate, groups=groups)

    def outcome(norm: BatchNorm, compute: Compute, precision: torch.dtype) -> dict[str, Tensor]:
        """All results of a forward and a backward pass for maps rounded to the same type."""
        far_from_zero = 3 * maps(shape, 0, DEVICE) + 20
        all_maps = (far_from_zero, maps(shape, 1, DEVICE), maps(shape, 2, DEVICE))
        x, other, outer = (values.to(dtype).to(precision) for values in all_maps)
        x.requires_grad_()
        other.requires_grad_()
        first, second = compute(x, other if added else None)
        (first * outer + second * outer.flip(0)).sum().backward()
        found = {
            "result": first.detach(),
            "gradient": x.grad,
            "of weight": norm.weight.grad,
            "of bias": norm.bias.grad,
            "of added": other.grad,
            "running mean": norm.running_mean,
            "running variance": norm.running_var,
        }
        return {name: value for name, value in found.items() if value is not None}

    expected = outcome(reference, plain, torch.float32)
    found = outcome(fused, in_kernels, dtype)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    for name, value in expected.items():
        error = (found[name].float() - value).norm() / value.norm().clamp(min=1e-6)
        assert error < tolerance, f"{name}: {float(error):.1e}"
    assert fused.num_batches_tracked == reference.num_batches_tracked
