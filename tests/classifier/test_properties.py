"""Whatever is handed in, it is learned or refused; and what is refused leaves no trace."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from onpro import OnlineClassifier

COUNT = st.integers(0, 4)
PIXELS = st.sampled_from(["u1", "f4", ">f4", "f8", "f2", "i8", "?", "u2", "c8", "O", "U1"])


@st.composite
def sensible(draw: Any, count: int) -> Any:
    """Images of 8×8 pixels in one of the kinds that are understood."""
    seed = draw(st.integers(0, 9))
    images = np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    kinds: list[Any] = [
        lambda: images,
        lambda: images.transpose(0, 3, 1, 2),
        lambda: (images / 255).astype(draw(st.sampled_from(["f2", "f4", "f8", ">f8"]))),
        lambda: images[..., 0],
        lambda: torch.from_numpy(images),
        lambda: torch.from_numpy(images / 255).permute(0, 3, 1, 2),
        lambda: list(images),
        lambda: [Image.fromarray(image) for image in images],
    ]
    return draw(st.sampled_from(kinds))()


@st.composite
def strange(draw: Any, count: int) -> Any:
    """Arrays of any shape, type and content, and things that are no arrays."""
    sides = draw(st.lists(st.sampled_from([0, 1, 2, 3, 8, 9]), max_size=4))
    shape = tuple([count, *sides][: draw(st.integers(0, 5))])
    arrays = PIXELS.flatmap(lambda dtype: hnp.arrays(np.dtype(dtype), shape))
    things: Any = st.none() | st.text(max_size=3) | st.integers() | st.floats() | st.just({})
    array = draw(arrays | things | st.lists(things, max_size=4))
    if isinstance(array, np.ndarray) and array.dtype.kind in "uf" and draw(st.booleans()):
        return torch.from_numpy(array.astype(array.dtype.newbyteorder("=")))
    return array


PLAIN = st.integers() | st.text(max_size=3) | st.booleans() | st.none() | st.floats()
LABEL = PLAIN | st.tuples(PLAIN, PLAIN) | st.binary(max_size=2) | st.sampled_from(["a", "b", 1, 2])
UNUSABLE = (
    st.lists(st.integers(), max_size=2) | st.just(float("nan")) | st.dictionaries(PLAIN, PLAIN)
)


@st.composite
def calls(draw: Any) -> tuple[Any, Any]:
    """Images and labels, mostly as they should be, as many of one as of the other."""
    count = draw(COUNT)
    images = draw(sensible(count) if draw(st.integers(0, 2)) else strange(count))
    label = LABEL if draw(st.integers(0, 3)) else LABEL | UNUSABLE
    number = count if draw(st.integers(0, 3)) else draw(COUNT)
    labels = draw(st.lists(label, min_size=number, max_size=number))
    return images, labels


def holds(fresh: OnlineClassifier, fingerprint: Any, series: list[tuple[Any, Any]]) -> None:
    """A few calls in a row, each checked."""
    classifier = fresh.clone()
    seen, classes = classifier.n_seen_, classifier.classes_.tolist()
    for images, labels in series:
        before = fingerprint(classifier)
        try:
            classifier.partial_fit(images, labels)
        except ValueError:
            assert fingerprint(classifier) == before
        else:
            seen += len(labels)
            classes = list(dict.fromkeys([*classes, *labels]))
        assert classifier.n_seen_ == seen
        assert classifier.classes_.tolist() == classes
        before = fingerprint(classifier)
        try:
            probabilities = classifier.predict_proba(images)
            predicted = classifier.predict(images)
        except ValueError:
            pass
        else:
            assert probabilities.shape == (len(predicted), len(classes))
            np.testing.assert_allclose(probabilities.sum(axis=1), 1)
            assert set(predicted.tolist()) <= set(classes)
        assert fingerprint(classifier) == before


@pytest.fixture(scope="module")
def fresh(make: Any, photos: Any) -> OnlineClassifier:
    """A classifier that has learned a little."""
    images, labels = photos(4)
    classifier: OnlineClassifier = make(memory=5, replay_batch=2).partial_fit(images, labels)
    return classifier


@pytest.mark.thorough
@given(series=st.lists(calls(), min_size=1, max_size=3))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_everything_is_learned_or_refused(
    fresh: OnlineClassifier, fingerprint: Any, series: list[tuple[Any, Any]]
) -> None:
    holds(fresh, fingerprint, series)


@pytest.mark.slow
@given(series=st.lists(calls(), min_size=1, max_size=3))
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_everything_is_learned_or_refused_at_length(
    fresh: OnlineClassifier, fingerprint: Any, series: list[tuple[Any, Any]]
) -> None:
    holds(fresh, fingerprint, series)
