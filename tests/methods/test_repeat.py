"""Repeated steps: the same images, in other augmentations."""

from typing import Any

import pytest
import torch

from onpro.errors import UserError
from onpro.methods import method
from onpro.training.stepper import Stepper
from tests.methods.learners import batches, learner, watch


def trained(name: str, **changes: Any) -> Stepper:
    """A method after some steps."""
    stepper = Stepper(learner(name, **changes))
    for batch in batches(5):
        stepper.step(batch)
    return stepper


def weights(stepper: Stepper) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in stepper.method.network.parameters()])


def test_one_repetition_is_the_method() -> None:
    assert weights(trained("er-repeat", repeats=1)).equal(weights(trained("er")))


def test_each_repetition_shows_other_augmentations() -> None:
    repeated = learner("er-repeat", repeats=3)
    shown = watch(repeated)
    (batch,) = batches(1)
    Stepper(repeated).step(batch)
    assert [len(forward.images) for forward in shown] == [len(batch)] * 3
    assert not shown[0].images.equal(shown[1].images)
    assert len(repeated.memory) == len(batch), "each image is stored once"


def test_the_order_of_wrappers_does_not_matter() -> None:
    settings: dict[str, Any] = {"optimizer": "adam", "learning_rate": 5e-3, "repeats": 2}
    first, second = (trained(name, **settings) for name in ("er-mkd-repeat", "er-repeat-mkd"))
    assert weights(first).equal(weights(second))


@pytest.mark.parametrize("name", ["derpp", "hpcr", "mir", "scr"])
def test_steps_that_cannot_be_repeated_are_refused(name: str) -> None:
    with pytest.raises(UserError, match="repeat cannot wrap"):
        method(f"{name}-repeat")
