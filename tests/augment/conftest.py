"""Fixtures of the augmentation tests."""

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1234)


@pytest.fixture
def normalise() -> Normalise:
    return Normalise((0.49, 0.48, 0.45), (0.25, 0.24, 0.26))


@pytest.fixture
def pixels(generator: torch.Generator) -> Tensor:
    """Eight colourful images of 0…1, higher than wide."""
    return torch.rand((8, 3, 18, 12), generator=generator)
