"""Check the properties that every method must have.

Each property is a function of a method's class and settings that raises AssertionError if the
property does not hold. `check_method` checks all of them on a tiny stream, in seconds.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from unittest.mock import patch

import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.imageset import ImageSet
from onpro.data.tiny import tiny
from onpro.methods.base import Context, Terms
from onpro.methods.registry import AnyMethod
from onpro.methods.settings import Settings
from onpro.streams import Batch, ClassIncremental
from onpro.training.stepper import Stepper, equal

CLASSES, TASKS = 4, 2
Property = Callable[[type[AnyMethod], Settings], None]


def check_method(cls: type[AnyMethod], settings: Settings | None = None) -> None:
    """Raise AssertionError unless the method has every property of `PROPERTIES`.

    Args:
        cls: A registered method.
        settings: Settings to check it with; by default the method's, with a small encoder.
    """
    assert hasattr(cls, "about"), f"{cls.__name__} is not registered: put @register(…) above it"
    if settings is None:
        settings = replace(cls.settings_type(), encoder="slim")
    for holds in PROPERTIES:
        holds(cls, settings)


def a_step_returns_its_terms(cls: type[AnyMethod], settings: Settings) -> None:
    """The constructor makes network and optimizer, and `learn` returns numbers by name."""
    learner = _new(cls, settings)
    for part in ("network", "optimizer"):
        assert hasattr(learner, part), f"the constructor must make self.{part}"
    stepper = Stepper(learner)
    for batch in _batches()[:2]:
        returned: list[object] = []

        def learn(batch: Batch, returned: list[object] = returned) -> Terms:
            returned.append(type(learner).learn(learner, batch))
            return {}

        with patch.object(learner, "learn", learn):
            stepper.use("eager")
            stepper.step(batch)
        for terms in returned:
            assert isinstance(terms, dict), f"learn must return a dict of terms, not {terms!r}"
            for name, term in terms.items():
                number = isinstance(term, Tensor) and not term.ndim
                assert number, f"the term {name!r} must be a tensor of one number, not {term!r}"


def equal_seeds_give_equal_runs(cls: type[AnyMethod], settings: Settings) -> None:
    """Equal seeds lead to equal states, different seeds to different ones."""
    first, second, other = (
        _trained(cls, settings, _batches()[:6], seed=seed).state_dict() for seed in (0, 0, 1)
    )
    assert equal(first, second), "two runs of one seed differ"
    assert not equal(first, other), "the seed changes nothing"


def its_state_is_complete(cls: type[AnyMethod], settings: Settings) -> None:
    """Every attribute that changes in training is saved."""
    try:
        _trained(cls, settings, _batches()).state_dict()
    except TypeError as error:
        raise AssertionError(str(error)) from error


def resuming_changes_nothing(cls: type[AnyMethod], settings: Settings) -> None:
    """A method resumed from a saved state continues as the original does."""
    batches = _batches()
    half = len(batches) // 2
    for cut in (1, half - 1, half, half + 1):
        straight = _trained(cls, settings, batches[:cut])
        state = copy.deepcopy(straight.state_dict())
        resumed = Stepper(_new(cls, settings))
        resumed.load_state_dict(state)
        for batch in batches[cut : cut + 3]:
            straight.step(batch)
            resumed.step(batch)
        assert equal(straight.state_dict(), resumed.state_dict()), (
            f"resumed from its state after step {cut}, the method learns differently: "
            "something that changes is not part of its state"
        )


def it_learns(cls: type[AnyMethod], settings: Settings) -> None:
    """Accuracy after a tiny stream, over two seeds, is far above chance."""
    right = total = 0
    for seed in (0, 1):
        stream = _stream(_data(120))
        stepper = _trained(cls, settings, list(stream), seed=seed)
        stepper.finish_task()
        for task in range(TASKS):
            test = stream.test(task)
            right += int((stepper.method.predict(test.images) == test.labels).sum())
            total += len(test)
    assert right / total > 1.8 / CLASSES, f"{right} of {total} right is close to chance"


def labels_may_come_in_any_order(cls: type[AnyMethod], settings: Settings) -> None:
    """Classes numbered out of order and with gaps are learned."""
    numbers = torch.tensor([7, 2, 5, 0])  # of classes 0, 1 in the first task, 2, 3 in the second
    stream = _stream(_data(120))
    stepper = Stepper(_new(cls, settings, classes=8))
    for batch in stream:
        stepper.step(_batch(batch.images, numbers[batch.labels], batch.task))
    stepper.finish_task()
    test = _data(120).test
    predicted = stepper.method.predict(test.images)
    right = (predicted == numbers[test.labels]).float().mean()
    assert right > 1.6 / CLASSES, f"{right:.0%} right is close to chance"


def batches_of_any_size_work(cls: type[AnyMethod], settings: Settings) -> None:
    """Batches with one image, one class, no image or many images work."""
    stepper = Stepper(_new(cls, settings))
    batches = _batches()
    for count in (3, 1, 7, 2):
        stepper.step(_head(batches[0], count))
    stepper.step(_head(batches[0], 0))
    large = _joined(batches[:6])
    stepper.step(large)
    alone = large.labels == large.labels[0]
    stepper.step(_batch(large.images[alone], large.labels[alone], 0))
    for batch in batches[-2:]:
        terms = stepper.step(batch)
        assert all(bool(term.isfinite()) for term in terms.values()), "a loss is not finite"
    predict = stepper.method.predict
    assert predict(large.images[:1]).shape == (1,), "one image, one prediction"
    assert predict(large.images[:0]).shape == (0,), "no image, no prediction"


def predicting_changes_nothing(cls: type[AnyMethod], settings: Settings) -> None:
    """Prediction uses eval mode, restores train mode, and does not change the state."""
    stepper = _trained(cls, settings, _batches()[:4])
    stepper.finish_task()
    learner, images = stepper.method, _batches()[0].images
    assert learner.network.training, "between steps the network must be in train mode"
    learner.predict(images)
    before = copy.deepcopy(stepper.state_dict())
    one_by_one = torch.cat([learner.predict(image[None]) for image in images])
    together = learner.predict(images)
    assert torch.equal(one_by_one, together), "a prediction depends on the images beside it"
    assert learner.network.training, "a prediction leaves the network out of train mode"
    assert equal(before, stepper.state_dict()), "a prediction changes the method's state"


def global_randomness_is_left_alone(cls: type[AnyMethod], settings: Settings) -> None:
    """The global random state is neither read nor changed."""
    before = torch.random.get_rng_state()
    try:
        states = []
        for seed in (1, 2):
            torch.manual_seed(seed)
            position = torch.random.get_rng_state()
            stepper = _trained(cls, settings, _batches()[:3])
            stepper.finish_task()
            assert torch.equal(position, torch.random.get_rng_state()), (
                "the global random state was changed"
            )
            states.append(stepper.state_dict())
        assert equal(*states), "the global random state was read"
    finally:
        torch.random.set_rng_state(before)


def unannounced_classes_and_boundaries_work(cls: type[AnyMethod], settings: Settings) -> None:
    """Heads grow if neither classes nor task boundaries are announced."""
    stepper = Stepper(_new(cls, settings, classes=None))
    for batch in _batches():
        stepper.step(replace(batch, task=None))
    learner = stepper.method
    assert learner.network.classes == CLASSES, "the head did not grow with the classes"
    predicted = learner.predict(_batches()[0].images)
    assert int(predicted.max()) < CLASSES, "a class was predicted that was never seen"
    state = copy.deepcopy(stepper.state_dict())
    resumed = Stepper(_new(cls, settings, classes=None))
    resumed.load_state_dict(state)
    assert equal(stepper.state_dict(), resumed.state_dict()), "a grown head does not load"


def a_class_can_be_dropped(cls: type[AnyMethod], settings: Settings) -> None:
    """No image of a forgotten class is left, and training continues without it."""
    stepper = Stepper(_new(cls, settings, classes=None))
    batches = [replace(batch, task=None) for batch in _batches()]
    for batch in batches[:-2]:
        stepper.step(batch)
    stepper.forget(0)
    labels = stepper.method.memory.labels
    assert not bool((labels == 0).any()), "images of a forgotten class are kept"
    for batch in batches[-2:]:
        stepper.step(batch)
    assert stepper.method.predict(batches[0].images).shape == (len(batches[0]),)


PROPERTIES: Sequence[Property] = (
    a_step_returns_its_terms,
    its_state_is_complete,
    equal_seeds_give_equal_runs,
    resuming_changes_nothing,
    it_learns,
    labels_may_come_in_any_order,
    batches_of_any_size_work,
    predicting_changes_nothing,
    global_randomness_is_left_alone,
    unannounced_classes_and_boundaries_work,
    a_class_can_be_dropped,
)


def _data(per_class: int) -> ImageSet:
    return tiny(classes=CLASSES, train_per_class=per_class, test_per_class=25)


def _stream(data: ImageSet) -> ClassIncremental:
    return ClassIncremental(data, TASKS)


def _batches() -> list[Batch]:
    return list(_stream(_data(30)))


def _new(
    cls: type[AnyMethod], settings: Settings, *, seed: int = 0, classes: int | None = CLASSES
) -> AnyMethod:
    data = _data(1)
    context = Context(
        data.image_shape,
        Normalise(data.mean, data.std),
        num_classes=classes,
        memory=40,
        seed=seed,
    )
    return cls(settings, context)


def _trained(
    cls: type[AnyMethod], settings: Settings, batches: Sequence[Batch], *, seed: int = 0
) -> Stepper:
    stepper = Stepper(_new(cls, settings, seed=seed))
    for batch in batches:
        stepper.step(batch)
    return stepper


def _batch(images: Tensor, labels: Tensor, task: int | None) -> Batch:
    return Batch(images, labels, task, tuple(labels.unique().tolist()))


def _head(batch: Batch, count: int) -> Batch:
    return _batch(batch.images[:count], batch.labels[:count], batch.task)


def _joined(batches: Sequence[Batch]) -> Batch:
    images = torch.cat([batch.images for batch in batches])
    return _batch(images, torch.cat([batch.labels for batch in batches]), batches[0].task)
