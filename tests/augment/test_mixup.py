"""Mixup."""

import torch

from onpro.augment import mix


def test_each_row_has_its_own_weight(generator: torch.Generator) -> None:
    x, y = torch.randn((2, 3, 3, 4, 5), generator=generator)
    mixed = mix(x, y, torch.tensor([0.0, 0.25, 1.0]))
    assert torch.equal(mixed[0], x[0])
    torch.testing.assert_close(mixed[1], 0.75 * x[1] + 0.25 * y[1])
    assert torch.equal(mixed[2], y[2])


def test_labels_mix_too_and_pure_ones_stay_whole() -> None:
    mixed = mix(torch.tensor([3.0, 7.0]), torch.tensor([9.0, 8.0]), torch.tensor([0.0, 0.5]))
    assert mixed.tolist() == [3.0, 7.5]
