"""Methods on a small stream, watched while they learn."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from onpro.augment import Normalise
from onpro.data.tiny import tiny
from onpro.errors import UserError
from onpro.methods import Context, method
from onpro.methods.base import Labelled, Method, S
from onpro.methods.parts import contrast
from onpro.methods.registry import AnyMethod
from onpro.nn.teacher import Teacher
from onpro.streams import Batch, ClassIncremental
from onpro.training.stepper import Stepper

NEWER = {"erace", "gsa", "hpcr", "mose", "pcr"}
"""Methods that the paper does not have."""

WRAPPED = (
    "er-mkd",
    "er-chain",
    "er-ccldc",
    "er-gwm",
    "er-repeat",
    "er-balanced-mkd",
    "er-mirror",
    "er-calibrated",
    "er-compressed",
    "derpp-mkd",
    "derpp-ccldc",
    "erace-ccldc",
    "gsa-mkd",
    "gsa-ccldc",
    "hpcr-mkd",
    "hpcr-gwm",
    "mose-mkd",
    "mose-gwm",
    "onpro-chain-mkd",
    "onpro-mkd-gwm",
    "relay-compressed-calibrated",
)
"""Methods in wrappers that train more than one network, or show images more often."""

UNSCALED = torch.ones((), dtype=torch.float64)
"""The loss scale of a loss that is not scaled."""

DATA = tiny(classes=4, train_per_class=50, test_per_class=5, image_size=8)


@dataclass(frozen=True)
class Forward:
    """One pass through a method's encoder."""

    images: Tensor
    training: bool


class WithoutChance(Method[S]):
    """No augmentation, and the whole memory in order: to put before a method.

    Images arrive, and are stored, as network input.
    """

    def normalise(self, images: Tensor) -> Tensor:
        return images

    def augment(self, images: Tensor) -> Tensor:
        return images

    def sample_replay(self, count: int) -> Labelled:
        return Labelled(self.normalise(self.memory.images), self.memory.labels)


@contextmanager
def given_slices(starts: Iterable[int]) -> Iterator[None]:
    """Let the contrast of OCM and OnPro take these slices of the features, one after the other."""
    given = iter(starts)
    with patch.object(contrast, "slice_start", lambda *_: torch.tensor([next(given)])):
        yield


def learner(name: str, *, float64: bool = False, **changes: Any) -> Any:
    """A method on images of 8×8; `num_classes`, `memory` and `seed` are those of the run."""
    run: dict[str, Any] = {"num_classes": 4, "memory": 200, "seed": 0}
    run |= {key: changes.pop(key) for key in list(changes) if key in run}
    settings = method(name).settings_type(**{"encoder": "slim"} | changes)
    context = Context(DATA.image_shape, Normalise(DATA.mean, DATA.std), **run)
    learner = method(name)(settings, context)
    return in_float64(learner) if float64 else learner


def in_float64(learner: AnyMethod) -> AnyMethod:
    """The method with all its networks in float64, to compare numbers on any processor.

    In float32 a network amplifies rounding, and with it the order in which a processor adds up.
    Augmentations are float32: leave them out.
    """
    normalise = learner.normalise
    for each in learner.learners:
        for part in vars(each).values():
            module = part.network if isinstance(part, Teacher) else part
            if isinstance(module, torch.nn.Module):
                module.double()
        each.normalise = lambda images: normalise(images).double()  # type: ignore[method-assign] # of this object alone
    return learner


@lru_cache(maxsize=16)
def stepper(learner: AnyMethod) -> Stepper:
    """What trains the method, the same one each time."""
    return Stepper(learner)


def batches(count: int, start: int = 0, size: int = 10) -> list[Batch]:
    """Batches of a stream of two tasks, of 10 batches of 10 images each."""
    return list(ClassIncremental(DATA, 2, batch_size=size))[start : start + count]


def watch(learner: AnyMethod) -> list[Forward]:
    """A list to which every pass through the encoder is added from now on."""
    forwards: list[Forward] = []

    def note(module: torch.nn.Module, inputs: tuple[Tensor]) -> None:
        forwards.append(Forward(inputs[0].detach().clone(), module.training))

    learner.network.encoder.register_forward_pre_hook(note)
    return forwards


def found_in(images: Tensor, others: Tensor) -> Tensor:
    """Which of the images (n, …) are among the others, (n,)."""
    return (images[:, None] == others[None]).flatten(2).all(dim=2).any(dim=1)


def refused(name: str, word: str, **changes: Any) -> None:
    """A bad value must be refused with one sentence that has the word."""
    with pytest.raises(UserError) as error:
        learner(name, **changes)
    sentence = str(error.value)
    assert word in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence
