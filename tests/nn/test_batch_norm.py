"""Batch norm with residual and ReLU: what it computes, and that fused kernels compute the same."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from onpro.nn.batch_norm import (
    BatchNorm,
    fused_kernels_exist,
    normalised_apart,
    use_fused_kernels,
)

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


def test_parts_of_a_batch_are_normalised_as_if_they_came_one_after_the_other() -> None:
    norm, reference = BatchNorm(6), BatchNorm(6)
    parts = [maps((n, 6, 3, 3), n) for n in (4, 1, 7)]
    with normalised_apart(norm, [4, 1, 7]):
        together = norm(torch.cat(parts))
    assert torch.equal(together, torch.cat([reference(part) for part in parts]))
    for name, buffer in reference.named_buffers():
        assert torch.equal(norm.get_buffer(name), buffer)
    assert torch.equal(norm(parts[0]), reference(parts[0]))  # only inside


def test_fused_kernels_are_not_used_on_a_cpu() -> None:
    norm, plain = BatchNorm(6), BatchNorm(6)
    use_fused_kernels(norm)
    x = maps((4, 6, 3, 3), 0)
    assert torch.equal(norm(x), plain(x))


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or not fused_kernels_exist(), reason="needs a CUDA device"
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("activate", [False, True])
@pytest.mark.parametrize(("shape", "groups"), SHAPES, ids=str)
def test_fused_kernels_compute_the_same(
    shape: tuple[int, ...],
    groups: tuple[int, ...],
    activate: bool,
    added: bool,
    dtype: torch.dtype,
) -> None:
    reference = BatchNorm(shape[1], device="cuda")
    with torch.no_grad():
        reference.weight.copy_(maps((1, shape[1], 1, 1), 5, "cuda").flatten())
        reference.bias.copy_(maps((1, shape[1], 1, 1), 6, "cuda").flatten())
    fused = deepcopy(reference)
    use_fused_kernels(fused)
    with normalised_apart(reference, groups), normalised_apart(fused, groups):
        expected = outcome(reference, shape, dtype, torch.float32, activate, added)
        found = outcome(fused, shape, dtype, dtype, activate, added)
    tolerance = 1e-4 if dtype == torch.float32 else 2e-2
    for name, value in expected.items():
        error = (found[name].float() - value).norm() / value.norm().clamp(min=1e-6)
        assert error < tolerance, f"{name}: {float(error):.1e}"
    assert fused.num_batches_tracked == reference.num_batches_tracked


def outcome(
    norm: BatchNorm,
    shape: tuple[int, ...],
    rounding: torch.dtype,
    dtype: torch.dtype,
    activate: bool,
    added: bool,
) -> dict[str, Tensor]:
    """All that a forward and a backward pass give, for maps rounded to one type, in another."""
    far_from_zero = 3 * maps(shape, 0, "cuda") + 20
    plain = (far_from_zero, maps(shape, 1, "cuda"), maps(shape, 2, "cuda"))
    x, other, outer = (values.to(rounding).to(dtype) for values in plain)
    x.requires_grad_()
    other.requires_grad_()
    first, second = norm.twice(x, other if added else None, activate=activate)
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
