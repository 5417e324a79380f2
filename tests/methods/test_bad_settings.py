"""Whatever setting a user gets wrong, a sentence says so before anything is trained."""

import logging
import math
from dataclasses import fields, replace
from typing import Any, get_type_hints

import pytest
import torch

from onpro.augment import Normalise
from onpro.errors import UserError
from onpro.methods import Context, method, methods
from onpro.streams import Batch
from onpro.validation import fits
from tests.methods.learners import DATA, batches, learner, refused, stepper

SLIPS: dict[type, list[Any]] = {
    int: [10**20, -(10**20), 1.5, "1", None, True],
    float: [math.nan, math.inf, -math.inf, 1e30, "0.1", None, True],
    str: [1, None, b"slim"],
    bool: [1, "yes", None],
}
"""For settings of a type, values that no method can make sense of."""
OF_NO_TYPE = ["nonsense", 3, None, (math.nan, 0.9), (0.9, math.inf), (0.9,)]
"""For all others: choices and pairs."""

MISTAKES: dict[str, tuple[str, dict[str, Any], str]] = {
    "momentum for Adam": ("er", {"optimizer": "adam", "momentum": 0.9}, "momentum is for SGD"),
    "optimizer": ("mir", {"optimizer": "rmsprop"}, "'sgd' or 'adam'"),
    "candidates below replay": ("mir", {"candidates": 63}, "at least as many candidates"),
    "no neighbours": ("aser", {"neighbours": 0}, "neighbours"),
    "less than a sample": ("aser", {"samples_per_class": 0.99}, "at least 1, not 0.99"),
    "empty gradient batch": ("gss", {"gradient_batch": 0}, "gradient batch must be at least 1"),
    "endless epochs": (
        "gdumb",
        {"epochs": 1_000_000},
        "between 1 and 10000, not 1000000",
    ),
    "schedule": ("gdumb", {"schedule": "linear"}, "'constant' or 'cosine'"),
    "cosine upwards": (
        "gdumb",
        {"schedule": "cosine", "learning_rate": 1e-5},
        "between 0 and the learning rate",
    ),
    "rate below 0": ("gdumb", {"minimum_learning_rate": -1.0}, "minimum learning rate"),
    "nothing to learn": (
        "dvc",
        {"cross_entropy_weight": 0.0, "entropy_weight": 0.0, "agreement_weight": 0.0},
        "one of the weights",
    ),
    "too cold": ("scr", {"temperature": 1e-30}, "at least 0.001, not 1e-30"),
    "too cold as well": ("pass", {"temperature": 1e-30}, "at least 0.001"),
    "too cold for images": ("ocm", {"instance_temperature": 1e-9}, "the instance temperature"),
    "too cold for classes": ("onpro", {"prototype_temperature": 1e-9}, "prototype temperature"),
    "projection too wide": ("scr", {"projection": 10**6}, "between 0 and 65536"),
    "embedding too wide": ("cope", {"embedding": 10**6}, "between 0 and 65536"),
    "wider than the features": ("ocm", {"projection": 161}, "wider than the encoder's 160"),
    "fewer slots than classes": ("cope", {"memory": 3}, "no room for 4 classes"),
    "contradiction": (
        "onpro",
        {"seen_prototypes": False, "seen_without_new": True},
        "seen prototypes are off",
    ),
    "rotations": ("aser-rot", {"rotations": 3}, "4 or 16"),
}


@pytest.mark.parametrize("name", list(methods()))
def test_no_setting_takes_what_makes_no_sense(name: str) -> None:
    kind = method(name).settings_type
    hints = get_type_hints(kind)
    for field in fields(kind):
        slips = SLIPS.get(hints[field.name], OF_NO_TYPE)
        for slip in slips:
            with pytest.raises(UserError) as told:
                kind(**{field.name: slip}).check()
            sentence = str(told.value)
            assert field.name.replace("_", " ") in sentence
            assert sentence.endswith(f"not {slip!r}.")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_trained(mistake: str) -> None:
    name, changes, sentence = MISTAKES[mistake]
    refused(name, sentence, **changes)


@pytest.mark.parametrize("name", ["er-rot", "aser-rot", "scr-rot", "dvc-rot", "onpro", "pass"])
def test_images_that_cannot_be_turned_are_refused(name: str) -> None:
    kind = method(name)
    turned: dict[str, Any] = {} if name == "pass" else {"rotations": 16}
    for shape, word in (((3, 8, 12), "square"), ((3, 9, 9), "even side")):
        context = Context(shape, Normalise(DATA.mean, DATA.std), num_classes=2)
        settings = kind.settings_type(encoder="slim", **turned)
        if name == "pass" and word == "even side":
            kind(settings, context)  # four rotations halve nothing
        else:
            with pytest.raises(UserError, match=word):
                kind(settings, context)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("aser", {"samples_per_class": 1e9, "neighbours": 10**9, "memory": 12}),
        ("gss", {"gradient_batch": 10**9, "gradient_batches": 10**9, "memory": 12}),
        ("mir", {"candidates": 10**9, "replay_batch": 10**9, "memory": 12}),
        ("derpp", {"logit_weight": 0.0, "label_weight": 0.0, "memory": 1}),
        ("gdumb", {"epochs": 1, "train_batch": 10**9, "memory": 2}),
        ("scr", {"review": True, "replay_batch": 10**9, "memory": 12}),
        ("icarl", {"memory": 1}),
    ],
)
def test_more_than_there_is_means_all_there_is(name: str, changes: dict[str, Any]) -> None:
    method = learner(name, **changes)
    for batch in batches(4) + batches(4, start=10):
        terms = stepper(method).step(batch)
    assert all(term.isfinite() for term in terms.values())
    stepper(method).finish_task()
    assert method.predict(DATA.test.images).shape == DATA.test.labels.shape


@pytest.mark.parametrize("name", list(methods()))
def test_single_images_that_leave_one_value_a_channel_are_learned(name: str) -> None:
    shape, pixels = (3, 4, 4), DATA.train.images[:, :, ::2, ::2]
    short: dict[str, Any] = {"epochs": 1} if name == "gdumb" else {}
    settings = replace(method(name).settings_type(), encoder="slim", **short)
    context = Context(shape, Normalise(DATA.mean, DATA.std), memory=4, num_classes=4)
    learning = method(name)(settings, context)
    for k in range(4):
        terms = stepper(learning).step(Batch(pixels[k : k + 1], torch.tensor([k]), k // 2, (k,)))
        assert all(term.isfinite() for term in terms.values())
    stepper(learning).finish_task()
    for tensor in learning.network.state_dict().values():
        assert tensor.isfinite().all()


def test_where_classes_outgrow_the_memory_cope_says_so(caplog: pytest.LogCaptureFixture) -> None:
    method = learner("cope", num_classes=None, memory=3)
    with caplog.at_level(logging.WARNING):
        stepper(method).step(batches(1)[0])
        assert not caplog.text
        for batch in batches(2, start=10):
            stepper(method).step(batch)
    assert caplog.text.count("3 images are too few for 4 classes") == 1


def test_forgotten_classes_take_no_share_of_the_memory_of_cope(
    caplog: pytest.LogCaptureFixture,
) -> None:
    method = learner("cope", num_classes=None, memory=3)
    with caplog.at_level(logging.WARNING):
        for k, batch in enumerate(batches(4)):
            one = replace(batch, labels=torch.full_like(batch.labels, k), classes=(k,))
            stepper(method).step(one)
            stepper(method).forget(k - 1)
    assert method.memory.labels.unique().tolist() == [3]
    assert not caplog.text


def test_a_number_of_another_kind_is_still_a_number() -> None:
    assert fits(1, float)
    assert not fits(True, float)
    assert fits((0.9, 1), tuple[float, float])


def test_a_whole_number_beyond_all_floats_is_no_number() -> None:
    assert not fits(10**400, float)
    assert fits(10**30, float)
