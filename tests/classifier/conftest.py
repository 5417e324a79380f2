"""A small classifier, images that can be told apart, and what tells two states apart."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch import Tensor

from onpro import OnlineClassifier

Photos = npt.NDArray[np.uint8]
Make = Callable[..., OnlineClassifier]


@pytest.fixture(scope="session")
def make() -> Make:
    """A classifier that learns in milliseconds."""

    def small(method: str = "er", **params: Any) -> OnlineClassifier:
        params = {"memory": 10, "device": "cpu", "encoder": "slim"} | params
        if method == "er":
            params = {"replay_batch": 10} | params
        return OnlineClassifier(method, **params)

    return small


@pytest.fixture(scope="session")
def photos() -> Callable[..., tuple[Photos, npt.NDArray[np.int64]]]:
    """Images (n, side, side, 3) of as many classes as asked for, in turn, and their classes."""

    def take(n: int, classes: int = 3, side: int = 8, seed: int = 0) -> tuple[Photos, Any]:
        patterns = np.random.default_rng(7).integers(0, 256, (classes, side, side, 3))
        labels = np.arange(n) % classes
        noise = np.random.default_rng(seed).integers(-20, 21, (n, side, side, 3))
        return (patterns[labels] + noise).clip(0, 255).astype(np.uint8), labels

    return take


@pytest.fixture(scope="session")
def fingerprint() -> Callable[[OnlineClassifier], str]:
    """A hash of everything a classifier has learned and will draw."""

    def feed(digest: Any, value: Any) -> None:
        if isinstance(value, Tensor):
            digest.update(value.contiguous().numpy().tobytes())
        elif isinstance(value, dict):
            for key, item in value.items():
                feed(digest, key)
                feed(digest, item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                feed(digest, item)
        else:
            digest.update(f"{type(value)} {value!r};".encode(errors="surrogatepass"))

    def of(classifier: OnlineClassifier) -> str:
        digest = hashlib.sha256()
        feed(digest, classifier.__getstate__() | {"given": None})
        return digest.hexdigest()

    return of
