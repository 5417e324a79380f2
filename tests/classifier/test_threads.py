"""Many threads ask while one learns: an answer is that of a moment between two steps."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onpro import OnlineClassifier


def ask_while_learning(
    classifier: OnlineClassifier, photos: Any, *, steps: int, answered: int
) -> None:
    """Compare what 8 threads were told with what is true between steps, at least so many."""
    images, labels = photos(10)
    probe, _ = photos(3, seed=5)
    between_steps = {classifier.predict_proba(probe).tobytes()}
    answers: list[bytes] = []
    errors: list[BaseException] = []
    over = threading.Event()

    def ask() -> None:
        try:
            while not over.is_set():
                answers.append(classifier.predict_proba(probe).tobytes())
                assert len(classifier.predict(probe)) == 3
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    while (steps > 0 or len(answers) < answered) and not errors:
        classifier.partial_fit(images, labels)
        between_steps.add(classifier.predict_proba(probe).tobytes())
        steps -= 1
    over.set()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    torn = set(answers) - between_steps
    assert not torn, f"{len(torn)} answers belong to no moment between steps"
    assert len(set(answers)) > 1, "the threads saw no progress"


def test_no_answer_is_torn(make: Any, photos: Any) -> None:
    ask_while_learning(make().partial_fit(*photos(10)), photos, steps=6, answered=30)


@pytest.mark.slow
def test_no_answer_of_many_is_torn(make: Any, photos: Any) -> None:
    ask_while_learning(make("onpro").partial_fit(*photos(10)), photos, steps=150, answered=1000)


def test_a_long_call_lets_others_in(make: Any, photos: Any) -> None:
    """A prediction waits for a step, not for the whole call."""
    images, labels = photos(600)
    classifier = make(batch_size=2).partial_fit(images[:2], labels[:2])
    learning = threading.Thread(target=classifier.partial_fit, args=(images, labels))
    learning.start()
    seen = []
    while learning.is_alive():
        classifier.predict(images[:1])
        seen.append(classifier.n_seen_)
    learning.join()
    assert len(set(seen)) > 20


def test_threads_that_learn_wait_for_each_other(make: Any, photos: Any) -> None:
    images, labels = photos(40)
    classifier = make()
    threads = [
        threading.Thread(target=classifier.partial_fit, args=(images, [f"{k}{y}" for y in labels]))
        for k in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert classifier.n_seen_ == 160
    owners = [name[0] for name in classifier.classes_]
    assert owners == sorted(owners, key=owners.index), "classes of one call arrived together"


def test_a_copy_may_be_taken_while_it_learns(make: Any, photos: Any) -> None:
    images, labels = photos(300)
    classifier = make().partial_fit(images[:10], labels[:10])
    learning = threading.Thread(target=classifier.partial_fit, args=(images, labels))
    learning.start()
    twins = [classifier.clone() for _ in range(4)]
    learning.join()
    for twin in twins:
        assert twin.n_seen_ % 10 == 0
        assert np.isfinite(twin.predict_proba(images)).all()


def test_a_prediction_during_fit_is_that_of_before_or_after(make: Any, photos: Any) -> None:
    """Never of a classifier that knows nothing yet, nor of one that is half fitted."""
    images, labels = photos(40)
    probe, _ = photos(3, seed=5)
    classifier = make(seed=0).fit(images, labels)
    before = classifier.predict_proba(probe).tobytes()
    other = make(seed=1, batch_size=2).fit(images, labels)
    after = other.predict_proba(probe).tobytes()
    assert before != after
    classifier.set_params(seed=1, batch_size=2)
    fitting = threading.Thread(target=classifier.fit, args=(images, labels))
    fitting.start()
    answers = set()
    while fitting.is_alive():
        answers.add(classifier.predict_proba(probe).tobytes())
    fitting.join()
    assert answers <= {before, after}
    assert classifier.predict_proba(probe).tobytes() == after


def test_many_threads_may_fit_save_and_ask(make: Any, photos: Any, tmp_path: Path) -> None:
    images, labels = photos(6)
    classifier = make(batch_size=3).fit(images, labels)
    classifier.save(tmp_path / "c")
    errors: list[BaseException] = []

    def work(call: Callable[[], object]) -> None:
        try:
            for _ in range(15):
                call()
        except BaseException as error:
            errors.append(error)

    calls: list[Callable[[], object]] = [
        lambda: classifier.fit(images, labels),
        lambda: classifier.predict(images),
        lambda: (classifier.classes_, classifier.n_seen_, classifier.memory_),
        lambda: classifier.save(tmp_path / "c"),
        lambda: make().fit(images, labels).save(tmp_path / "c"),
        lambda: OnlineClassifier.load(tmp_path / "c", device="cpu").predict(images),
        lambda: OnlineClassifier.load(tmp_path / "c", device="cpu").save(tmp_path / "c"),
    ]
    threads = [threading.Thread(target=work, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_classifiers_made_side_by_side_are_those_of_their_seeds(make: Any, photos: Any) -> None:
    images, labels = photos(4)

    def first_weights(seed: int) -> bytes:
        proba: bytes = make(seed=seed).partial_fit(images, labels).predict_proba(images).tobytes()
        return proba

    expected = [first_weights(seed) for seed in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            assert list(pool.map(first_weights, range(8))) == expected
