"""Randomness owned by the run: one generator for each purpose, all derived from one seed."""

import hashlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor


def derive_seed(seed: int, purpose: str) -> int:
    """A seed for one purpose of a run: equal for equal arguments, unrelated for different ones."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


class Generators:
    """The random generators of a run on one device, made when first asked for.

    A purpose draws from its own generator, so that, say, another augmentation does not change
    which images are kept. The global random state is never touched.
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
        """Those used so far."""
        return iter(self._generators.values())

    def state_dict(self) -> dict[str, Tensor]:
        """The state of every generator used so far."""
        return {purpose: g.get_state() for purpose, g in self._generators.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue every generator where the state left it."""
        self._generators.clear()
        for purpose, position in state.items():
            self[purpose].set_state(position.cpu())
