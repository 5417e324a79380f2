"""Behind a live stream it does as well as on the benchmark, for as long as it takes."""

import gc
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

from onpro import OnlineClassifier
from onpro.augment import Normalise
from onpro.data.digits import load_digits
from onpro.methods import Context, method, settings_for
from onpro.streams import ClassIncremental
from onpro.training.stepper import Stepper

MEMORY = 100


def accuracy_on_the_benchmark(name: str, seed: int) -> float:
    """Percent right after digits class by class, ten classes and all boundaries announced."""
    data = load_digits()
    stream = ClassIncremental(data, tasks=10, seed=seed)
    normalise = Normalise(stream.mean, stream.std)
    context = Context(stream.image_shape, normalise, num_classes=10, memory=MEMORY, seed=seed)
    learner = method(name)(settings_for(name, "digits"), context)
    stepper = Stepper(learner)
    for batch in stream:
        stepper.step(batch)
    stepper.finish_task()
    return 100 * float((learner.predict(data.test.images) == data.test.labels).float().mean())


def accuracy_on_a_live_stream(name: str, seed: int) -> float:
    """The same images in the same order, nothing announced, the labels words."""
    data = load_digits()
    settings = asdict(settings_for(name, "digits"))
    classifier = OnlineClassifier(name, memory=MEMORY, seed=seed, device="cpu", **settings)
    for batch in ClassIncremental(data, tasks=10, seed=seed):
        classifier.partial_fit(batch.images, [f"digit {label}" for label in batch.labels])
    truth = [f"digit {label}" for label in data.test.labels]
    return 100 * classifier.score(data.test.images, truth)


@pytest.mark.parametrize(
    ("name", "seeds"), [("er", 2), pytest.param("onpro", 3, marks=pytest.mark.slow)]
)
def test_nothing_announced_costs_at_most_two_points(name: str, seeds: int) -> None:
    benchmark = np.mean([accuracy_on_the_benchmark(name, seed) for seed in range(seeds)])
    live = np.mean([accuracy_on_a_live_stream(name, seed) for seed in range(seeds)])
    assert live >= benchmark - 2


def resident() -> float:
    """Megabytes of memory this process takes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def tensors() -> int:
    gc.collect()
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param(1_000, marks=pytest.mark.thorough),
        pytest.param(10_000, marks=pytest.mark.slow),
    ],
)
def test_no_call_leaves_anything_behind(make: Any, photos: Any, calls: int) -> None:
    images, labels = photos(2, classes=2)
    classifier = make(memory=5, replay_batch=5)
    for _ in range(50):
        classifier.partial_fit(images, labels)
        classifier.predict(images)
    count, before = tensors(), resident() if Path("/proc/self/statm").exists() else 0.0
    for call in range(calls):
        classifier.partial_fit(images, labels)
        if call % 10 == 0:
            classifier.predict(images)
    assert tensors() <= count
    if before:
        assert resident() - before < 10
    assert classifier.n_seen_ == 2 * (calls + 50)
