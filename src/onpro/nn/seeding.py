"""Initial weights that depend on a seed alone."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Modules built inside get the weights of this seed; the global random state stays as it is.

    The framework's initialisers draw from the CPU's global generator, so that one is lent the seed
    and put back afterwards. Those of other devices are not touched: build on the CPU, then move.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
