"""Many threads ask while one learns: an answer is that of a moment between two steps."""

import threading
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
