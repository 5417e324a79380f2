"""On a GPU: what was learned there or elsewhere can be taken to the other."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onpro import OnlineClassifier
from onpro.methods import method, methods
from onpro.training.device import deterministic_mode
from onpro.training.engine import Engine
from onpro.training.graphs import CapturedStep

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


CONSTRUCT = """
import os, torch
from onpro import OnlineClassifier
OnlineClassifier()
OnlineClassifier(device="cuda", precision="auto")
assert not torch.cuda.is_initialized()
child = os.fork()
if not child:  # a process cannot use a GPU that its parent has initialised
    torch.ones(1, device="cuda")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


def test_the_constructor_leaves_the_gpu_alone() -> None:
    subprocess.run([sys.executable, "-c", CONSTRUCT], check=True)


@pytest.mark.parametrize(("here", "there"), [("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")])
@pytest.mark.parametrize("name", sorted(methods()))
def test_a_file_goes_on_elsewhere(
    photos: Any, tmp_path: Path, name: str, here: str, there: str
) -> None:
    images, labels = photos(30)
    # Room for all: a class without an image has a random mean in some methods.
    original = OnlineClassifier(name, memory=60, device=here, encoder="slim", precision="fp32")
    expected = original.partial_fit(images, labels).predict_proba(images)  # GDumb trains here
    original.save(tmp_path / "c")
    moved = OnlineClassifier.load(tmp_path / "c", device=there)
    np.testing.assert_array_equal(moved.memory_.images, original.memory_.images)
    np.testing.assert_allclose(moved.predict_proba(images), expected, rtol=1e-2, atol=1e-3)
    late = np.array(["new", "newer", "newest"])[labels]
    expected = moved.partial_fit(images, late).predict_proba(images)
    moved.save(tmp_path / "back")
    back = OnlineClassifier.load(tmp_path / "back", device=here)
    assert back.n_seen_ == 60
    assert back.classes_.tolist() == [0, 1, 2, "new", "newer", "newest"]
    np.testing.assert_allclose(back.predict_proba(images), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["er", "onpro", "scr", "er-mkd"])
def test_steps_are_replayed_between_new_classes_forgetting_and_odd_batches(
    photos: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outcome is that of eager steps with the same kernels."""
    images, labels = photos(90)
    replays: list[int] = []
    replay: Any = CapturedStep.replay

    def counted(step: CapturedStep, batch: Any) -> Any:
        replays.append(1)
        return replay(step, batch)

    monkeypatch.setattr(CapturedStep, "replay", counted)

    def learned(engine: Engine) -> Any:
        clf = OnlineClassifier(name, memory=30, device="cuda", encoder="slim", precision="fp32")
        for start in range(0, 90, 15):  # batches of 10 and 5
            chosen = slice(start, start + 15)
            clf.partial_fit(images[chosen], labels[chosen] + (start >= 60))
            if start == 0:
                assert clf._model is not None
                clf._model.stepper.use(engine)
            if start == 30:
                clf.forget(0)
        for _ in range(4):
            clf.partial_fit(images[:20], labels[:20])
        return clf.predict_proba(images)

    with deterministic_mode(torch.device("cuda")):
        expected = learned("eager")
        assert not replays
        found = learned("graph")
    assert len(replays) > 4
    np.testing.assert_array_equal(found, expected)


def test_classifiers_learn_and_predict_in_threads_while_steps_are_captured(photos: Any) -> None:
    images, labels = photos(60)

    def learned(seed: int) -> Any:
        clf = OnlineClassifier(
            "er", memory=30, device="cuda", encoder="slim", precision="fp32", seed=seed
        )
        for _ in range(3):
            clf.partial_fit(images, labels).predict(images)
        return clf.predict_proba(images)

    with deterministic_mode(torch.device("cuda")):
        alone = [learned(seed) for seed in range(4)]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(learned, range(4)))
    np.testing.assert_array_equal(together, alone)


def test_a_method_that_waits_for_the_device_learns_eagerly(
    photos: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, labels = photos(60)
    cls = method("er")
    learn: Any = cls.learn

    def waiting(self: Any, batch: Any) -> Any:
        terms = learn(self, batch)
        self.noted = float(terms["new"].detach())  # a host–device sync
        return terms

    def learned() -> Any:
        clf = OnlineClassifier("er", memory=30, device="cuda", encoder="slim", precision="fp32")
        return clf.partial_fit(images, labels).partial_fit(images, labels).predict_proba(images)

    with deterministic_mode(torch.device("cuda")):
        expected = learned()
        monkeypatch.setattr(cls, "learn", waiting)
        np.testing.assert_array_equal(learned(), expected)
