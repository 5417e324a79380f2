"""Thousands of odd inputs: each is learned as what it means, or refused without a trace."""

import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from onpro import OnlineClassifier
from onpro.nn import ENCODERS
from tests.classifier import glance
from tests.classifier.strange import Given, Hostile, given, photos


@pytest.fixture(autouse=True)
def _small_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, glance.NAME, glance.KIND)


def learn(rng: random.Random, classifier: OnlineClassifier, fingerprint: Any, case: Given) -> str:
    """Learn, and compare with a twin that was told the same in the plainest way."""
    call = rng.choice(["partial_fit"] * 4 + ["fit"])
    before, twin = fingerprint(classifier), classifier.clone()
    seen = 0 if call == "fit" else classifier.n_seen_
    try:
        getattr(classifier, call)(case.images, case.labels)
    except ValueError:
        assert fingerprint(classifier) == before
        return "refused"
    count = len(case.labels)
    assert classifier.n_seen_ == seen + count
    if any(type(label) is Hostile for label in case.labels):
        return "learned, with labels that lie"
    if case.meaning is None:
        return "learned, though strange"
    getattr(twin, call)(case.meaning, list(case.labels))
    assert fingerprint(twin) == fingerprint(classifier), "the same images are learned differently"
    return "learned"


def ask(rng: random.Random, classifier: OnlineClassifier, fingerprint: Any, case: Given) -> str:
    before = fingerprint(classifier)
    call = rng.choice(["predict", "predict_proba", "score", "forget"])
    try:
        if call == "score":
            share = classifier.score(case.images, case.labels)
            assert 0 <= share <= 1
        elif call == "forget":
            for label in case.labels if isinstance(case.labels, (list, tuple)) else [case.labels]:
                classifier.forget(label)
                before = fingerprint(classifier)
        else:
            answer = getattr(classifier, call)(case.images)
            if call == "predict_proba":
                assert answer.shape[1] == len(classifier.classes_)
                np.testing.assert_allclose(answer.sum(axis=1), 1)
            if case.meaning is not None:
                plain = getattr(classifier, call)(case.meaning)
                assert answer.shape == plain.shape
                assert all(
                    x is y or np.array_equal(x, y) for x, y in zip(answer, plain, strict=True)
                )
    except NotFittedError:
        return "nothing left"
    except ValueError:
        assert fingerprint(classifier) == before
        outcome = "refused"
    else:
        assert fingerprint(classifier) == before
        outcome = "answered"
    return outcome if classifier.__sklearn_is_fitted__() else "nothing left"


def inputs(count: int, fingerprint: Any) -> Counter[str]:
    became = Counter[str]()
    classifier: OnlineClassifier | None = None
    for seed in range(count):
        rng = random.Random(seed)
        if classifier is None or seed % 50 == 0:
            classifier = OnlineClassifier(
                "er", memory=5, replay_batch=2, device="cpu", encoder=glance.NAME, batch_size=2
            )
            classifier.partial_fit(photos(rng, 3), ["a", "b", 1])
        case = given(rng)
        try:
            way = ask if rng.randrange(3) == 0 else learn
            outcome = way(rng, classifier, fingerprint, case)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        if outcome in ("nothing left", "learned, with labels that lie"):
            classifier = None
        became[outcome] += 1
    return became


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:RuntimeWarning")
def test_odd_inputs_are_learned_as_what_they_mean_or_refused(fingerprint: Any) -> None:
    became = inputs(250, fingerprint)
    assert became["refused"] > 80
    assert became["learned"] > 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore:.*:RuntimeWarning")
def test_twenty_thousand_odd_inputs_are_learned_or_refused(
    fingerprint: Any, record_property: Any
) -> None:
    became = inputs(20_000, fingerprint)
    record_property("became", json.dumps(became))
    print(became)  # noqa: T201 # the figure
    assert became.total() == 20_000
