"""Counts of multiply-accumulates against sums by hand."""

import pytest
import torch
from torch import nn

from onpro.nn.macs import macs


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (nn.Conv2d(8, 16, 3, padding=1), 16 * 12 * 12 * 8 * 9),
        (nn.Conv2d(8, 16, 3, stride=2, bias=False), 16 * 5 * 5 * 8 * 9),
        (nn.Conv2d(8, 16, 3, padding=1, groups=4), 16 * 12 * 12 * 2 * 9),
        (nn.Conv2d(8, 8, 3, padding=1, groups=8), 8 * 12 * 12 * 9),
        (nn.Sequential(nn.Flatten(), nn.Linear(8 * 12 * 12, 7)), 8 * 12 * 12 * 7),
        (nn.Linear(12, 5, bias=False), 8 * 12 * 12 * 5),
        (nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1)), 0),
    ],
    ids=["dense", "strided", "grouped", "depthwise", "linear", "linear-without-bias", "none"],
)
def test_macs_are_those_of_the_weights(layer: nn.Module, expected: int) -> None:
    assert macs(layer, (8, 12, 12)) == expected


def test_counting_changes_neither_the_module_nor_the_global_random_state() -> None:
    with torch.random.fork_rng(devices=[]):
        network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    random = torch.get_rng_state()
    macs(network, (3, 8, 8))
    assert torch.get_rng_state().equal(random)
    assert network.training
    assert all(module.training and not module._forward_hooks for module in network.modules())
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())
