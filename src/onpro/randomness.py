"""Randomness owned by a run: one generator per purpose, all derived from one seed."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock

import torch
from torch import Tensor

from onpro.torch_private import standard_gamma

_global_generator = RLock()


def derive_seed(seed: int, purpose: str) -> int:
    """Derive the seed of one purpose of a run; different arguments give unrelated seeds."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Generators:
    """The random generators of a run on one device, created on first use.

    Each purpose has its own generator, so that, for instance, a different augmentation does not
    change which images are stored. The global random state is neither read nor changed.
    """

    def __init__(self, seed: int, device: torch.device) -> None:
        self.seed = seed
        self.device = device
        self._generators: dict[str, torch.Generator] = {}

    def __getitem__(self, purpose: str) -> torch.Generator:
        if purpose not in self._generators:
            generator = torch.Generator(self.device)
            generator.manual_seed(derive_seed(self.seed, purpose))
            self._generators[purpose] = generator
        return self._generators[purpose]

    def __iter__(self) -> Iterator[torch.Generator]:
        """Iterate over the generators used so far."""
        return iter(self._generators.values())

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state of every generator used so far."""
        return {purpose: g.get_state() for purpose, g in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore every generator from `state_dict`."""
        self._generators.clear()
        for purpose, position in state.items():
            self[purpose].set_state(position.cpu())


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Initialise the modules built inside from a seed, leaving the global random state unchanged.

    torch's initialisers use the CPU's global generator, so it is seeded and restored afterwards,
    for one thread at a time. Generators of other devices are not seeded: build modules on the CPU,
    then move them.
    """
    with _global_generator, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def beta(concentration: float, count: int, generator: torch.Generator) -> Tensor:
    """Sample from Beta(c, c) without a host–device sync.

    Args:
        concentration: c.
        count: Number of samples.
        generator: Source of randomness.

    Returns:
        (count,) samples, on the generator's device.
    """
    shape = torch.full((2, count), concentration, device=generator.device)
    # A small concentration gives samples that underflow to 0; 0/0 would be NaN.
    a, b = standard_gamma(shape, generator).clamp(min=1e-30)
    samples: Tensor = a / (a + b)
    return samples
