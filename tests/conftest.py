"""Fixtures every test may use."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side; read when torch loads
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command sets it
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when a GPU is first used

import numpy as np
import pytest
import torch
from torch import Tensor

GOLDEN = Path(__file__).parent / "golden"


class Golden(Mapping[str, Tensor]):
    """Inputs and outputs of a reference implementation, as tensors, by key."""

    def __init__(self, file: str) -> None:
        self._arrays = np.load(GOLDEN / file, allow_pickle=False)

    def __getitem__(self, key: str) -> Tensor:
        return torch.from_numpy(np.asarray(self._arrays[key]).copy())

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays.files)

    def __len__(self) -> int:
        return len(self._arrays.files)

    def group(self, prefix: str) -> dict[str, Tensor]:
        """All tensors whose key starts with the prefix, by the rest of their key."""
        return {k[len(prefix) :]: self[k] for k in self if k.startswith(prefix)}


@pytest.fixture(scope="session")
def golden() -> Golden:
    """Golden numbers of OnPro."""
    return Golden("onpro.npz")


@pytest.fixture(scope="session")
def golden_baselines() -> Golden:
    """Golden numbers of the baselines."""
    return Golden("baselines.npz")


@pytest.fixture(autouse=True)
def _untouched_global_randomness() -> Iterator[None]:
    """Nothing in the package may read or move the global random state of torch."""
    before = torch.random.get_rng_state()
    yield
    assert torch.equal(before, torch.random.get_rng_state()), "the global random state was used"
