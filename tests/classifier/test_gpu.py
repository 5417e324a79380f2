"""On a GPU: what was learned there or elsewhere can be taken to the other."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from onpro import OnlineClassifier
from onpro.methods import methods

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
