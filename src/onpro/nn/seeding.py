"""Initial weights that depend on a seed alone."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_lent = RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Modules built inside get the weights of this seed; the global random state stays as it is.

    The framework's initialisers draw from the CPU's global generator, so that one is lent the seed
    and put back afterwards, to one thread at a time. Those of other devices are not touched: build
    on the CPU, then move.
    """
    with _lent, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
