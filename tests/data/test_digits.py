import subprocess
import sys

import pytest
import torch

from onpro.data import digits, load
from onpro.data.imageset import measure


def test_all_images_are_there_and_a_fifth_of_each_class_is_the_test_set() -> None:
    data = load("digits")
    train, test = data.train.labels.bincount(), data.test.labels.bincount()
    assert int((train + test).sum()) == 1797
    assert test.equal((train + test) // 5)
    assert data.classes == tuple("0123456789")


def test_the_split_does_not_depend_on_the_seed() -> None:
    assert load("digits", seed=0).train.images.equal(load("digits", seed=7).train.images)


def test_a_class_is_cut_once_and_keeps_its_order() -> None:
    from sklearn.datasets import load_digits

    data = load("digits")
    labels = torch.from_numpy(load_digits().target)
    threes = (labels == 3).nonzero()[:, 0]
    images = torch.from_numpy(load_digits().images)[threes]
    ours = torch.cat([split.images[split.labels == 3] for split in (data.train, data.test)])
    assert ours[:, 0].double().mul(16 / 255).round().equal(images)


def test_grey_levels_span_the_whole_range_in_three_equal_channels() -> None:
    data = load("digits")
    assert data.train.images.min() == 0
    assert data.train.images.max() == 255
    assert data.train.images[:, 0].equal(data.train.images[:, 2])
    assert (data.mean, data.std) == measure(data.train.images)


def test_they_need_no_import_of_scikit_learn() -> None:
    code = (
        "import sys; from onpro.data import load; load('digits'); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_scikit_learn_is_asked_where_its_file_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = load("digits").train
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    asked = digits.load_digits().train
    assert asked.images.equal(expected.images)
    assert asked.labels.equal(expected.labels)
