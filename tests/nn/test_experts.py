"""MOSE's network: gates, branches and their shapes."""

import pytest
import torch
from torch import nn
from torch.nn.functional import interpolate

from onpro.nn import build_encoder
from onpro.nn.experts import Block, ExpertEncoder, ExpertNetwork, Gate, upsampled
from onpro.randomness import seeded


@pytest.mark.parametrize("sizes", [(16, 16, 32, 32), (2, 3, 4, 6), (1, 1, 2, 2), (2, 2, 3, 3)])
def test_maps_are_resized_as_torch_does_it(sizes: tuple[int, int, int, int]) -> None:
    height, width, new_height, new_width = sizes
    maps = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0)).double()
    expected = interpolate(maps, (new_height, new_width), mode="bilinear", align_corners=False)
    torch.testing.assert_close(upsampled(maps, new_height, new_width), expected)


def test_a_block_halves_maps_with_separable_convolutions() -> None:
    with seeded(0):
        block = Block(8, 16)
    assert block(torch.zeros(2, 8, 6, 6)).shape == (2, 16, 3, 3)
    convolutions = [m for m in block.modules() if isinstance(m, nn.Conv2d)]
    assert [c.groups for c in convolutions] == [8, 1, 8, 1]
    assert [c.stride[0] for c in convolutions] == [2, 1, 1, 1]
    assert all(c.bias is None for c in convolutions)
    assert (
        sum(p.numel() for p in block.parameters())
        == 9 * 8 + 8 * 8 + 2 * 8 + 9 * 8 + 8 * 16 + 2 * 16
    )


def test_a_gate_is_between_0_and_1_and_of_the_shape_of_the_maps() -> None:
    maps = torch.randn(2, 8, 5, 6, generator=torch.Generator().manual_seed(0))
    with seeded(0):
        gate = Gate(8)(maps)
    assert gate.shape == maps.shape
    assert ((gate > 0) & (gate < 1)).all()


@pytest.mark.parametrize(("name", "experts"), [("resnet18-nf20", 4), ("slim", 3)])
def test_experts_have_as_many_features_as_the_last_stage(name: str, experts: int) -> None:
    trunk = build_encoder(name, (3, 16, 16), seed=0)
    images = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    with seeded(0):
        encoder = ExpertEncoder(trunk).eval()
    features = encoder(images)
    assert features.shape == (2, experts * trunk.out_features)
    assert encoder.out_features == features.shape[1]
    # The trunk is not gated: the last expert is the encoder by itself.
    torch.testing.assert_close(features.chunk(experts, dim=1)[-1], trunk(images))
    maps = trunk.stages(images)
    assert tuple(x.shape[1] for x in maps) == trunk.stage_widths
    assert [len(list(branch.children())) for branch in encoder.branches] == list(
        range(experts - 1, 0, -1)
    )
    gated = encoder.gates[0](maps[0]) * maps[0]
    first = encoder.branches[0](gated).mean((2, 3))
    torch.testing.assert_close(features.chunk(experts, dim=1)[0], first)


def test_equal_seeds_make_equal_networks_with_he_initialisation() -> None:
    first, second, other = (
        ExpertNetwork("slim", (3, 8, 8), 3, projection=4, seed=seed) for seed in (0, 0, 1)
    )
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])
    weight = first.encoder.trunk.state_dict()["conv3.weight"]
    assert weight.std().item() == pytest.approx((2 / (160 * 9)) ** 0.5, rel=0.05)
    assert not torch.equal(first.heads[0].weight, other.heads[0].weight)  # type: ignore[arg-type]
    assert first(torch.zeros(2, 3, 8, 8)).shape == (2, 3)
    assert first.logits(torch.zeros(2, 3, 8, 8)).shape == (2, 3)
