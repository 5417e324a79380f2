"""The check of a method lets a sound one pass and stops each kind of mistake."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from onpro.memory import Memory
from onpro.memory.per_class import PerClassMemory
from onpro.memory.reservoir import reservoir_batch
from onpro.methods import Context, Settings
from onpro.methods.base import About, Method, Terms
from onpro.streams import Batch
from onpro.training.check import a_class_can_be_dropped, check_method


@dataclass(frozen=True)
class ReplaySettings(Settings):
    """Settings of a third party's method."""

    learning_rate: float = 0.1
    """Learning rate (default: ours)."""


class Replay(Method[ReplaySettings]):
    """A sound method: new and replayed images in two forwards."""

    about = About("replay", "Replay", "None", 2024, "images", "linear head", "42")
    settings_type = ReplaySettings

    def __init__(self, settings: ReplaySettings, context: Context) -> None:
        super().__init__(settings, context)
        self.network = self.make_network()
        self.optimizer = torch.optim.SGD(self.network.parameters(), settings.learning_rate)
        self.memory = self.make_memory()

    def learn(self, batch: Batch) -> Terms:
        terms = {"new": self.loss(self.normalise(batch.images), batch.labels)}
        if len(self.memory):
            terms["replay"] = self.loss(*self.sample_replay(32))
        self.minimise(terms)
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.network.logits(self.augment(images)), labels)


class Forgetful(Replay):
    """Keeps a number that is no part of its state."""

    steps = 0

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        self.steps += 1
        return super().loss(images, labels) / self.steps


class Secretive(Replay):
    """Keeps a number in an object that cannot save itself."""

    def __init__(self, settings: ReplaySettings, context: Context) -> None:
        super().__init__(settings, context)
        self.notes = SimpleNamespace(steps=0)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        self.notes.steps += 1
        loss: Tensor = super().loss(images, labels) / self.notes.steps
        return loss


class Gambling(Replay):
    """Draws from torch's global randomness."""

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return super().loss(images + 0.1 * torch.rand(images.shape), labels)


class Peeking(Replay):
    """Reads the global random state without moving it."""

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return super().loss(images, labels) * (1 + torch.random.initial_seed() % 5)


class Asleep(Replay):
    """Stays in eval mode after a prediction."""

    @torch.no_grad()
    def scores(self, images: Tensor) -> Tensor:
        self.network.eval()
        return self.eval_scores(self.normalise(images))


class Restless(Replay):
    """Predicts in train mode."""

    @torch.no_grad()
    def scores(self, images: Tensor) -> Tensor:
        return self.eval_scores(self.normalise(images))


class Idle(Replay):
    """Never takes a step."""

    def minimise(self, terms: Terms) -> None:
        pass


class Seedless(Replay):
    """Is the same whatever the seed."""

    def __init__(self, settings: ReplaySettings, context: Context) -> None:
        fixed = {**vars(context), "seed": 0}
        super().__init__(settings, Context(**fixed))


class Diverging(Replay):
    """Has a loss that is not finite."""

    def learn(self, batch: Batch) -> Terms:
        return super().learn(batch) | {"broken": torch.tensor(torch.nan)}


class Shouting(Replay):
    """Predicts a class it has room for but has never seen."""

    def grow(self, classes: int) -> None:
        super().grow(classes + 1)


class Silent(Replay):
    """Tells no terms."""

    def learn(self, batch: Batch) -> Terms:
        super().learn(batch)
        return None  # type: ignore[return-value] # the mistake


class Verbose(Replay):
    """Tells a term for each image."""

    def learn(self, batch: Batch) -> Terms:
        return super().learn(batch) | {"each": torch.zeros(len(batch))}


class Bodiless(Replay):
    """Has no network."""

    def __init__(self, settings: ReplaySettings, context: Context) -> None:
        super().__init__(settings, context)
        del self.network


class Clinging(Replay):
    """Keeps the images of a class that was given up."""

    def forget(self, label: int) -> None:
        pass


BROKEN: list[tuple[type[Replay], str]] = [
    (Silent, "learn must return a dict of terms, not None"),
    (Verbose, "the term 'each' must be a tensor of one number"),
    (Bodiless, "the constructor must make self.network"),
    (Clinging, "images of a forgotten class are kept"),
    (Forgetful, "self.steps of Forgetful changes while it learns, but is not saved"),
    (Secretive, "something that changes is not part of its state"),
    (Gambling, "two runs of one seed differ"),
    (Peeking, "global random state was read"),
    (Asleep, "leaves the network out of train mode"),
    (Restless, "depends on the images beside it"),
    (Idle, "close to chance"),
    (Seedless, "the seed changes nothing"),
    (Diverging, "a loss is not finite"),
    (Shouting, "the head did not grow with the classes"),
]


def test_a_sound_method_passes() -> None:
    check_method(Replay)


class Memoryless(Replay):
    """A sound method that keeps no image."""

    def __init__(self, settings: ReplaySettings, context: Context) -> None:
        super().__init__(settings, context)
        self.memory = Memory(0, context.image_shape, device=context.device)

    def learn(self, batch: Batch) -> Terms:
        loss = self.loss(self.normalise(batch.images), batch.labels)
        self.minimise({"new": loss})
        return {"new": loss}


class ByClass(Replay):
    """A sound method with the other kind of memory."""

    memory: PerClassMemory  # type: ignore[assignment] # another kind of memory

    def __init__(self, settings: ReplaySettings, context: Context) -> None:
        super().__init__(settings, context)
        self.memory = PerClassMemory(context.memory, context.image_shape, device=context.device)

    def learn(self, batch: Batch) -> Terms:
        terms = {"new": self.loss(self.normalise(batch.images), batch.labels)}
        slots, _ = self.memory.sample(32, self.random["memory"])
        if len(slots):
            replay = self.memory.take(slots)
            terms["replay"] = self.loss(self.normalise(replay.images), replay.labels)
        self.minimise(terms)
        return terms

    def after_step(self, batch: Batch) -> None:
        self.memory.update(batch.images, batch.labels, batch.classes, self.random["memory"])


@pytest.mark.parametrize("cls", [Memoryless, ByClass])
def test_a_class_can_be_dropped_whatever_is_kept_of_it(cls: type[Any]) -> None:
    a_class_can_be_dropped(cls, ReplaySettings(encoder="slim"))


def test_a_method_that_is_not_registered_is_told_so() -> None:
    class Unregistered(Method[Settings]):
        def learn(self, batch: Batch) -> Terms:
            return {}

    with pytest.raises(AssertionError, match="Unregistered is not registered"):
        check_method(Unregistered)


def test_settings_can_be_given() -> None:
    check_method(Replay, ReplaySettings(encoder="slim", augmentation="none"))


LATE = {Asleep, Clinging, Diverging, Peeking, Restless, Shouting}
"""Those that pass several properties before they fail."""


@pytest.mark.parametrize(
    ("cls", "complaint"),
    [
        pytest.param(
            *broken,
            id=broken[0].__name__,
            marks=[pytest.mark.thorough] if broken[0] in LATE else [],
        )
        for broken in BROKEN
    ],
)
def test_a_broken_method_is_told_what_is_wrong(cls: type[Any], complaint: str) -> None:
    with torch.random.fork_rng(devices=[]), pytest.raises(AssertionError, match=complaint):
        check_method(cls)


def test_a_method_that_raises_is_not_swallowed() -> None:
    class Raising(Replay):
        def learn(self, batch: Batch) -> Terms:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        check_method(Raising)
