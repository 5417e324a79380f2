"""The private names of torch still exist and do what onpro needs them for."""

import pytest
import torch
from torch import Tensor

from onpro import torch_private

GONE = "torch {} has no {} any more: find another way for onpro.torch_private.{}"


@pytest.mark.parametrize(
    ("holder", "name", "use"),
    [
        (torch, "_standard_gamma", "standard_gamma"),
        (torch._C, "_are_functorch_transforms_active", "in_function_transform"),
    ],
)
def test_torch_still_has_the_name(holder: object, name: str, use: str) -> None:
    assert hasattr(holder, name), GONE.format(torch.__version__, name, use)


def test_gamma_samples_come_from_the_given_generator_alone() -> None:
    concentration = torch.tensor([0.4, 1.0, 5.0]).repeat(4000, 1)
    one, same, other = (
        torch_private.standard_gamma(concentration, torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    )
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    torch.testing.assert_close(one.mean(dim=0), concentration[0], rtol=0.1, atol=0)
    torch.testing.assert_close(one.var(dim=0), concentration[0], rtol=0.2, atol=0)


def test_active_transforms_are_detected() -> None:
    seen: list[bool] = []

    def note(x: Tensor) -> Tensor:
        seen.append(torch_private.in_function_transform())
        return x.sum()

    assert not torch_private.in_function_transform()
    torch.func.vmap(note)(torch.ones(2, 3))
    torch.func.grad(note)(torch.ones(3))
    assert seen == [True, True], "torch.func is active in vmap and grad"
    assert not torch_private.in_function_transform()
