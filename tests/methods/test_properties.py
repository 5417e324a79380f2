"""Every method has every property."""

from dataclasses import replace

import pytest
import torch

from onpro.methods import method, methods, recipes, settings_for
from onpro.training.check import PROPERTIES, Property
from tests.methods.learners import NEWER, batches, learner, stepper

SLOW = {"it_learns", "labels_may_come_in_any_order"}
"""Properties that take a whole stream; those of methods that are not in the paper are thorough."""

CASES = [
    pytest.param(
        name,
        holds,
        id=f"{name}-{holds.__name__}",
        marks=[pytest.mark.thorough] if name in NEWER and holds.__name__ in SLOW else [],
    )
    for name in sorted(methods())
    for holds in PROPERTIES
]


@pytest.mark.parametrize(("name", "holds"), CASES)
def test_every_method_has_every_property(name: str, holds: Property) -> None:
    holds(method(name), settings_for(name, "tiny"))


VARIATIONS = [(name, recipe) for name in sorted(methods()) for recipe in (None, *recipes(name))]


@pytest.mark.parametrize(("name", "recipe"), VARIATIONS)
def test_every_variation_learns_classes_in_scrambled_numbers(name: str, recipe: str | None) -> None:
    """Two tasks, of classes 7 and 2, then 5 and 0, of which 8 are announced."""
    numbers = torch.tensor([7, 2, 5, 0])
    settings = vars(settings_for(name, "tiny", recipe)) | {"encoder": "slim"}
    if "epochs" in settings:
        settings["epochs"] = 1
    learned = learner(name, num_classes=8, memory=20, **settings)
    for batch in (*batches(3), *batches(4, start=10)):
        labels = numbers[batch.labels]
        classes = tuple(sorted(labels.unique().tolist()))
        terms = stepper(learned).step(replace(batch, labels=labels, classes=classes))
        assert all(bool(term.isfinite()) for term in terms.values())
    stepper(learned).finish_task()
    assert learned.progress.seen == {0, 2, 5, 7}
    assert learned.progress.seen_before_task == {2, 7}
    assert {0, 2, 5, 7} >= set(learned.memory.labels.tolist())
    assert stepper(learned).state_dict()
