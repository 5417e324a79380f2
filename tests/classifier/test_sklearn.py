"""Scikit-learn's conventions, as far as they can hold for images."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from onpro import OnlineClassifier

ON_ANY_INPUT = [
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_fit1d",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_parameters_default_constructible",
    "check_set_params",
    "check_supervised_y_no_nan",
    "check_valid_tag_types",
]
"""Those of scikit-learn's checks that do not fit the estimator to a table of numbers."""


@pytest.mark.filterwarnings("ignore:.*delay parameter validation")  # ours is at once, by contract
@pytest.mark.parametrize("check", ON_ANY_INPUT)
def test_the_checks_that_need_no_table_hold(make: Any, check: str) -> None:
    holds = getattr(estimator_checks, check, None)
    if holds is None:
        pytest.skip("this scikit-learn has no such check")
    holds("OnlineClassifier", make())


def test_an_empty_clone_has_the_parameters_and_nothing_else(make: Any, photos: Any) -> None:
    classifier = make(seed=3, mean=(0.1, 0.2, 0.3), learning_rate=0.05).partial_fit(*photos(6))
    empty = clone(classifier)
    assert empty.get_params() == classifier.get_params()
    assert not hasattr(empty, "classes_")
    check_is_fitted(classifier)
    assert is_classifier(classifier)


def test_parameters_can_be_read_and_changed(make: Any) -> None:
    classifier = make(memory=7)
    assert classifier.get_params()["memory"] == 7
    assert classifier.set_params(memory=9, replay_batch=3) is classifier
    assert (classifier.memory, classifier.get_params()["replay_batch"]) == (9, 3)
    for wrong in ({"memory": 0}, {"replay_bach": 3}, {"method": "em"}):
        before = classifier.get_params()
        with pytest.raises(ValueError, match=r"memory|did you mean"):
            classifier.set_params(**wrong)
        assert classifier.get_params() == before


def test_fit_takes_a_changed_image_size(make: Any, photos: Any) -> None:
    images, labels = photos(20, side=16)
    classifier = make(image_size=8).fit(images, labels)
    classifier.set_params(image_size=12)
    assert len(classifier.predict(images)) == 20, "until then the old size holds"
    classifier.fit(images, labels)
    assert classifier.memory_.images.shape[1:] == (12, 12, 3)
    assert len(classifier.partial_fit(images, labels).predict(images)) == 20


def test_it_ends_a_pipeline(make: Any, photos: Any) -> None:
    images, labels = photos(60)
    pipeline = make_pipeline(FunctionTransformer(partial(np.flip, axis=2)), make(memory=30))
    pipeline.fit(images, labels)
    assert pipeline.score(images, labels) > 0.8
    assert pipeline.predict_proba(images).shape == (60, 3)
    assert not hasattr(clone(pipeline)[-1], "classes_")


def test_it_can_be_cross_validated_and_searched(make: Any, photos: Any) -> None:
    images, labels = photos(60)
    assert cross_val_score(make(memory=30), images, labels, cv=2).shape == (2,)
    search = GridSearchCV(make(), {"memory": [5, 30], "learning_rate": [0.01, 0.1]}, cv=2)
    search.fit(images, labels)
    assert search.best_score_ > 0.7


def test_scores_can_be_weighted(make: Any, photos: Any) -> None:
    images, labels = photos(40)
    classifier = make().partial_fit(images, labels)
    wrong = classifier.predict(images) + 1
    weights = np.r_[np.ones(10), np.zeros(30)]
    mixed = np.r_[classifier.predict(images)[:10], wrong[10:]]
    assert classifier.score(images, mixed) == 0.25
    assert classifier.score(images, mixed, sample_weight=weights) == 1
    for bad in (np.zeros(40), np.ones(39), np.full(40, np.nan), -weights, "heavy", [[1]] * 40):
        with pytest.raises(ValueError, match="weights"):
            classifier.score(images, mixed, sample_weight=bad)


def test_a_prediction_does_not_depend_on_the_images_beside_it(make: Any, photos: Any) -> None:
    images, labels = photos(30)
    classifier = make().partial_fit(images, labels)
    together = classifier.predict_proba(images)
    alone = np.concatenate([classifier.predict_proba(image[None]) for image in images])
    np.testing.assert_allclose(alone, together, rtol=1e-4, atol=1e-7)
    backwards = classifier.predict_proba(images[::-1])[::-1]
    np.testing.assert_allclose(backwards, together, rtol=1e-4, atol=1e-7)


def test_equal_seeds_fit_equally(make: Any, photos: Any, fingerprint: Any) -> None:
    images, labels = photos(20)
    first, again, other = (make(seed=seed).fit(images, labels) for seed in (0, 0, 1))
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)


def test_a_read_only_file_can_be_learned_from(make: Any, photos: Any, tmp_path: Any) -> None:
    images, labels = photos(10)
    np.save(tmp_path / "images.npy", images)
    mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
    np.testing.assert_array_equal(make().fit(mapped, labels).memory_.images, images)


def test_its_name_says_what_it_was_given() -> None:
    text = repr(OnlineClassifier("er", memory=9, device="cpu", replay_batch=3))
    assert all(part in text for part in ("OnlineClassifier", "memory=9", "replay_batch=3"))
