"""A balanced memory in place of a method's reservoir."""

import pytest
import torch

from onpro.errors import UserError
from onpro.methods import method, methods
from onpro.training.stepper import Stepper
from tests.methods.learners import batches, learner


@pytest.mark.parametrize("name", ["er", "scr", "derpp"])
def test_the_memory_of_a_method_is_balanced(name: str) -> None:
    learned = learner(f"{name}-balanced", memory=12)
    stepper = Stepper(learned)
    for batch in batches(20):
        stepper.step(batch)
    assert learned.memory.labels.bincount().tolist() == [3, 3, 3, 3]


def test_the_step_is_that_of_the_method() -> None:
    first, second = learner("er"), learner("er-balanced")
    (batch,) = batches(1)
    assert float(Stepper(first).step(batch)["new"]) == float(Stepper(second).step(batch)["new"])


@pytest.mark.parametrize("name", sorted(methods()))
def test_a_reservoir_can_be_balanced(name: str) -> None:
    if name in ("aser", "cope", "gdumb", "gss", "pass", "relay"):
        with pytest.raises(UserError, match=rf"balanced cannot wrap {name}, "):
            method(f"{name}-balanced")
    else:
        assert method(f"{name}-balanced")


def test_an_image_and_its_mirror_image_get_the_same_scores() -> None:
    learned = learner("er-mirror")
    stepper = Stepper(learned)
    (batch,) = batches(1)
    stepper.step(batch)
    scores = learned.scores(batch.images)
    torch.testing.assert_close(scores, learned.scores(batch.images.flip(-1)))
    plain = learner("er")
    plain.load_state_dict(learned.state_dict())
    mean = (plain.scores(batch.images) + plain.scores(batch.images.flip(-1))) / 2
    torch.testing.assert_close(scores, mean)
