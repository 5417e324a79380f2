"""Predictions with the batch-norm statistics of the memory."""

from copy import deepcopy
from typing import Any

import pytest
import torch

from onpro.augment import rotations
from onpro.errors import UserError
from onpro.methods import method
from onpro.nn.batch_norm import BatchNorm
from tests.methods.averages import doubled
from tests.methods.learners import batches, learner, stepper


def learned_from(name: str, steps: int, **changes: Any) -> Any:
    """A method in float64 after some steps."""
    learned = learner(name, float64=True, augmentation="none", **changes)
    learned.calibrated.network.double()
    if hasattr(learned, "momentum_teacher"):
        doubled(learned)
    train = stepper(learned)
    for batch in batches(steps):
        train.step(batch)
    return learned


def norms(network: torch.nn.Module) -> list[Any]:
    return [part for part in network.modules() if isinstance(part, BatchNorm)]


def test_the_first_statistics_are_those_of_the_stored_images() -> None:
    learned = learned_from("er-calibrated", 6)
    maps = learned.network.encoder.conv1(learned.normalise(learned.memory.images))
    first = norms(learned.predictor)[0]
    torch.testing.assert_close(first.running_mean, maps.mean((0, 2, 3)))
    torch.testing.assert_close(first.running_var, maps.transpose(0, 1).flatten(1).var(dim=1))


def test_scores_are_those_of_a_network_that_normalises_the_memory_and_the_images_alike() -> None:
    learned = learned_from("er-calibrated", 6)
    images = batches(8)[-1].images
    network = deepcopy(learned.network)
    for norm in norms(network):
        norm.momentum = 1.0  # statistics become those of the last batch
    with torch.no_grad():
        network.train()(learned.normalise(learned.memory.images))
        expected = network.eval()(learned.normalise(images))
    torch.testing.assert_close(learned.scores(images), expected)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("er-rot-calibrated", {"rotations": 4}), ("relay-calibrated", {"predict_from": "image"})],
)
def test_stored_images_are_seen_in_all_rotations_that_are_learned(
    name: str, changes: dict[str, Any]
) -> None:
    learned = learned_from(name, 6, **changes)
    turned = rotations(learned.normalise(learned.memory.images), 4)
    maps = norms(learned.predictor)[0], learned.predictor.encoder.conv1(turned)
    torch.testing.assert_close(maps[0].running_mean, maps[1].mean((0, 2, 3)))


def test_it_follows_every_step_and_changes_nothing_in_training() -> None:
    learned, plain = (
        learned_from("er-calibrated", 3),
        learner("er", float64=True, augmentation="none"),
    )
    images = batches(8)[-1].images
    before = learned.scores(images)
    train, other = stepper(learned), stepper(plain)
    for batch in batches(3):
        other.step(batch)
    for batch in batches(6)[3:]:
        train.step(batch)
        other.step(batch)
        learned.scores(images)
    assert not torch.allclose(before, learned.scores(images))
    pairs = zip(
        learned.network.state_dict().values(), plain.network.state_dict().values(), strict=True
    )
    assert all(torch.equal(*pair) for pair in pairs)


def test_predictions_between_two_steps_share_their_statistics() -> None:
    learned = learned_from("er-calibrated", 3)
    times: list[Any] = []
    calibrate = learned.calibrated.calibrate
    learned.calibrated.calibrate = lambda *given: times.append(calibrate(*given))
    *_, last = batches(4)
    for expected in (1, 2):
        for _ in range(2):
            learned.scores(last.images)
        assert len(times) == expected
        stepper(learned).step(last)


def test_without_stored_images_it_predicts_as_the_method() -> None:
    learned, plain = learner("er-calibrated"), learner("er")
    images = batches(1)[0].images
    torch.testing.assert_close(learned.scores(images), plain.scores(images))


def test_a_loaded_state_is_calibrated_anew() -> None:
    learned = learned_from("er-calibrated", 4)
    state = deepcopy(learned.state_dict())
    images = batches(8)[-1].images
    expected = learned.scores(images)
    with torch.no_grad():
        learned.network.encoder.conv1.weight.mul_(-1)
    learned.load_state_dict(state)
    torch.testing.assert_close(learned.scores(images), expected)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("scr-calibrated", "predicts from its memory already"),
        ("er-calibrated-mkd", "since calibrated comes last"),
        ("er-ccldc-calibrated", "since ccldc comes last"),
    ],
)
def test_what_cannot_be_calibrated_is_refused(name: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        method(name)
