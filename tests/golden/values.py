"""Golden numbers of the original implementations, for tests that say which of them they read.

A test names what it reads, as `@pytest.mark.golden("baselines/gss.{kind}.{case}.*")`: patterns of
keys `<file>/<key>`, in which names in braces are parameters of the test. The fixture `golden` gives
these values and no others, and fails a test that leaves one of them unread.
"""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent


@cache
def _arrays(file: str) -> Mapping[str, np.ndarray]:
    arrays: Mapping[str, np.ndarray] = np.load(FOLDER / f"{file}.npz", allow_pickle=False)
    return arrays


@cache
def all_keys() -> frozenset[str]:
    """The keys of all files, as `<file>/<key>`."""
    return frozenset(f"{p.stem}/{key}" for p in FOLDER.glob("*.npz") for key in _arrays(p.stem))


def matching(patterns: Iterable[str]) -> set[str]:
    """The keys that match one of the patterns; each pattern must match one."""
    found = set()
    for pattern in patterns:
        keys = {key for key in all_keys() if fnmatchcase(key, pattern)}
        assert keys, f"no golden key matches {pattern}"
        found |= keys
    return found


def near(actual: Tensor, expected: Tensor, *, scale: Tensor | None = None) -> None:
    """Assert that values are equal but for the rounding of the original, which is in float32.

    Args:
        actual: computed in float64.
        expected: golden values.
        scale: what they were computed from, where they are differences of larger numbers.
    """
    largest = float((expected if scale is None else scale).abs().max())
    torch.testing.assert_close(actual.detach(), expected, rtol=1e-5, atol=1e-6 * largest)


class Golden(Mapping[str, Tensor]):
    """Golden values by key, whole numbers as int64 and all others as float64.

    Computed in float64, what a test compares with them does not depend on the processor: only the
    rounding of the stored float32 values is left.
    """

    def __init__(self, keys: Iterable[str], prefix: str = "", read: set[str] | None = None) -> None:
        self._keys = frozenset(keys)
        self._prefix = prefix
        self.read: set[str] = set() if read is None else read
        """Keys, in full, that somebody asked for."""

    def __getitem__(self, key: str) -> Tensor:
        full = self._prefix + key
        if full not in self._keys:
            raise KeyError(f"{full}: is it in the test's golden mark?")
        self.read.add(full)
        file, _, name = full.partition("/")
        value = torch.from_numpy(np.array(_arrays(file)[name]))
        return value.double() if value.is_floating_point() else value

    def __iter__(self) -> Iterator[str]:
        keys = sorted(key for key in self._keys if key.startswith(self._prefix))
        return (key.removeprefix(self._prefix) for key in keys)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        return f"{self._prefix}{key}" in self._keys

    def group(self, prefix: str) -> "Golden":
        """The values whose key starts with the prefix, by the rest of their key; at least one."""
        group = Golden(self._keys, self._prefix + prefix, self.read)
        assert len(group), f"no golden key starts with {self._prefix}{prefix}"
        return group

    def assert_all_read(self) -> None:
        """Fail where a value was never asked for."""
        unread = sorted(self._keys - self.read)
        assert not unread, f"named in the golden mark, but not read: {unread}"
